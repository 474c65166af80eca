"""What programs on other hosts may ask: all that a client of this host asks for itself, nothing that is the tree's.

The replies are those of the conversations these are taken from.
"""

from __future__ import annotations

from .broker import Acquire, Answering, BudgetsQuery, DeclareCap, PolicyQuery, QuotaSeen, Release, ReleaseAll, Renew
from .fleet import AgentsQuery, AwaitAgent, Spawn, StatusQuery, StopAgents
from .ledger import LedgerRequest

RemoteRootRequest = Spawn | AwaitAgent | StopAgents | AgentsQuery | StatusQuery
RemoteBrokerRequest = (
    Acquire | Release | Answering | ReleaseAll | Renew | QuotaSeen | DeclareCap | BudgetsQuery | PolicyQuery
)
RemoteLedgerRequest = LedgerRequest
