"""Which statement answers a query."""

from __future__ import annotations

from typing import assert_never

from ..protocol.messages.ledger import (
    CallsQuery,
    DeadLettersQuery,
    GenerationQuery,
    RestartsQuery,
    SearchQuery,
    SessionQuery,
    SessionsQuery,
    StoreQuery,
    StoreReply,
    SwarmsQuery,
    TasksQuery,
    TotalsQuery,
    TranscriptQuery,
    TurnLeaseQuery,
    UsageQuery,
)
from ..protocol.messages.pricing import PriceCellsQuery
from ..protocol.messages.tokens import TokensQuery
from . import lookups, price_cells, queries, search_queries, session_queries, token_tables, usage_queries
from .database import Database


def answer(database: Database, query: StoreQuery) -> StoreReply:
    """Answer `query` from what is committed."""
    match query:
        case TranscriptQuery():
            return queries.transcript(database, query)
        case TotalsQuery():
            return queries.totals(database, query)
        case CallsQuery():
            return queries.calls(database, query)
        case RestartsQuery():
            return queries.restarts(database, query)
        case TokensQuery():
            return token_tables.tokens(database, query.session)
        case UsageQuery():
            return usage_queries.usage(database, query)
        case PriceCellsQuery():
            return price_cells.price_cells(database, query)
        case SessionsQuery():
            return session_queries.sessions(database, query)
        case SessionQuery():
            return session_queries.session(database, query)
        case SearchQuery():
            return search_queries.find(database, query)
        case GenerationQuery():
            return lookups.generation(database, query)
        case SwarmsQuery():
            return lookups.swarms(database, query)
        case TasksQuery():
            return lookups.tasks(database, query)
        case TurnLeaseQuery():
            return lookups.turn_lease(database, query)
        case DeadLettersQuery():
            return lookups.dead_letters(database, query)
        case _:
            assert_never(query)
