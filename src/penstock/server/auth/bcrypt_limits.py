"""How much bcrypt a peer may make the server compute before it has logged in.

One comparison costs 50-300 ms of a core by design, so an unauthenticated peer can buy much work
with little. Whoever runs the checks of `NeedsBcrypt` keeps to both bounds: at most
`BCRYPT_CHECKS_MAX` at once, on threads of their own, and at most `BCRYPT_WAITING_MAX` logins
queued behind them; a login beyond that is refused at once.
"""

from typing import Final

BCRYPT_CHECKS_MAX: Final = 2
BCRYPT_WAITING_MAX: Final = 1024
