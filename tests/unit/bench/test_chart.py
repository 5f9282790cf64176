"""The chart is well-formed, stays inside its frame and shows wins to the right of 1×."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.chart import ChartRow, render

SVG = "{http://www.w3.org/2000/svg}"

factors = st.one_of(st.none(), st.floats(0.01, 200))
labels = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=30)
rows = st.lists(st.builds(ChartRow, labels, factors, factors), max_size=20)


def bars(document: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    """Bars whose class list has `kind`; the legend's swatches are left out."""
    found = document.iter(f"{SVG}rect")
    return [
        bar for bar in found if kind in bar.attrib["class"].split() and bar.attrib["height"] != "12"
    ]


def even_line(document: ElementTree.Element) -> float:
    lines = [line for line in document.iter(f"{SVG}line") if line.attrib["class"] == "even"]
    assert len(lines) == 1
    return float(lines[0].attrib["x1"])


@given(labels, rows)
def test_any_comparison_gives_well_formed_svg_inside_its_frame(
    title: str, data: list[ChartRow]
) -> None:
    document = ElementTree.fromstring(render(title, data))
    width, height = float(document.attrib["width"]), float(document.attrib["height"])
    for bar in document.iter(f"{SVG}rect"):
        assert float(bar.attrib["x"]) >= 0
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) <= height


@given(rows)
def test_every_measured_factor_has_its_bar(data: list[ChartRow]) -> None:
    document = ElementTree.fromstring(render("t", data))
    assert len(bars(document, "cpu")) == sum(row.cpu_advantage is not None for row in data)
    assert len(bars(document, "rate")) == sum(row.rate_ratio is not None for row in data)


def test_losses_are_drawn_left_of_even_and_wins_right_of_it() -> None:
    document = ElementTree.fromstring(render("t", [ChartRow("loss and win", 0.5, 3.0)]))
    even = even_line(document)
    (loss,) = bars(document, "loss")
    (win,) = bars(document, "rate")
    assert float(loss.attrib["x"]) < even
    assert abs(float(loss.attrib["x"]) + float(loss.attrib["width"]) - even) < 0.2
    assert abs(float(win.attrib["x"]) - even) < 0.2


def test_lines_mark_even_and_twice_as_good() -> None:
    document = ElementTree.fromstring(render("t", [ChartRow("a", 1.5, 1.5)]))
    kinds = [line.attrib["class"] for line in document.iter(f"{SVG}line")]
    assert kinds.count("even") == 1
    assert kinds.count("double") == 1
