"""Limits of the bcrypt work that a client can cause before it has logged in.

One comparison costs 50-300 ms of a core by design, so an unauthenticated client can cause much work
cheaply. The code that runs the checks of `NeedsBcrypt` must keep both limits: at most
`BCRYPT_CHECKS_MAX` at once, on dedicated threads, and at most `BCRYPT_WAITING_MAX` logins queued
after them. It refuses further logins at once.
"""

from typing import Final

BCRYPT_CHECKS_MAX: Final = 2
BCRYPT_WAITING_MAX: Final = 1024
