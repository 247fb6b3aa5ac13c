"""What a call costs, by the offline table of genai-prices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TieredPrices

from everfill.compute.models.wire import Tokens

__all__ = ["Prices"]

_FRESH: Final = timedelta(minutes=1)
"""Some prices hang on the time of day."""
_MILLION: Final = 1_000_000


class _Rates(NamedTuple):
    """US dollars a token."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class Prices:
    """Prices of calls, with what is linear remembered: the table's own sum takes 0.3 ms a call."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, str], tuple[datetime, _Rates | None]] = {}

    def cost_usd(self, model: str, base_url: str, tokens: Tokens) -> float:
        """At the endpoint's own prices, else at the model's usual ones, else 0."""
        now = datetime.now(UTC)
        key = (model, base_url)
        known = self._rates.get(key)
        if known is None or now - known[0] > _FRESH:
            known = self._rates[key] = now, _find_rates(model, base_url, now)
        rates = known[1]
        if rates is None:
            return _ask(model, base_url, tokens)
        fresh = tokens.input - tokens.cache_read - tokens.cache_write
        return (
            max(fresh, 0) * rates.input
            + tokens.output * rates.output
            + tokens.cache_read * rates.cache_read
            + tokens.cache_write * rates.cache_write
        )


def _find_rates(model: str, base_url: str, now: datetime) -> _Rates | None:
    """The rates, where a call costs so much a token however long it is; else None."""
    for endpoint in (base_url, None):
        try:
            _, info = get_snapshot().find_provider_model(model, None, None, endpoint)
        except LookupError:
            continue
        prices = vars(info.get_prices(now))
        if any(isinstance(price, TieredPrices) for price in prices.values()):
            return None
        break
    million = [
        Tokens(input=_MILLION),
        Tokens(output=_MILLION),
        Tokens(input=_MILLION, cache_read=_MILLION),
        Tokens(input=_MILLION, cache_write=_MILLION),
    ]
    return _Rates(*(_ask(model, base_url, tokens) / _MILLION for tokens in million))


def _ask(model: str, base_url: str, tokens: Tokens) -> float:
    usage = Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
    )
    for endpoint in (base_url, None):
        try:
            price: Decimal = calc_price(usage, model, provider_api_url=endpoint).total_price
        except LookupError:
            continue
        return float(price)
    return 0.0
