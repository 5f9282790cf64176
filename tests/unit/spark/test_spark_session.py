"""What a session is made with."""

from __future__ import annotations

from penstock.spark.spark_session import LIGHT_JAVA, settings


def test_callers_settings_count() -> None:
    found = settings("local[2]", light=False, conf={"spark.ui.enabled": True, "spark.x": 5})
    assert (found["spark.ui.enabled"], found["spark.x"]) == ("true", "5")
    assert found["spark.driver.host"] == "127.0.0.1"


def test_cluster_is_not_reported_of_loopback() -> None:
    assert "spark.driver.host" not in settings("spark://there:7077", light=False, conf={})


def test_light_session_has_light_java() -> None:
    found = settings("local", light=True, conf={})
    assert found["spark.driver.extraJavaOptions"] == LIGHT_JAVA
