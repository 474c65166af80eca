"""The targets of one call: which are still to be tried, and which of those that were left are worth coming back to.

Pure state of one call. A target is proven dead in this call if what failed before is its failure too (`is_same`);
before its key was chosen, it is taken to have the key that its provider gave last.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...protocol.backend import Backend, is_same
from ...protocol.fault_kinds import FaultScope
from ...protocol.model_facts import model_facts
from ...protocol.settings import ProviderSettings
from .patience import Strain


class Target(msgspec.Struct, frozen=True):
    """A provider and the model's name there."""

    provider: ProviderSettings
    model: str

    @property
    def name(self) -> str:
        """Provider and model, as people write them."""
        return f"{self.provider.name}/{self.model}"

    def backend(self, credential: str | None) -> Backend:
        """The backend this is with a key's fingerprint; None: which key is not known."""
        return Backend(self.provider.name, self.model, self.provider.base_url, credential)

    @property
    def window_tokens(self) -> int | None:
        """The model's context window, where it is known."""
        return model_facts(self.provider, self.model).context_window


class Resort(msgspec.Struct, frozen=True):
    """A target that was left for a better one, and may be asked (again) if there is none: from `until` on, or at once
    if nobody `asked` for that time."""

    until: float
    index: int
    backend: Backend
    strain: Strain
    asked: bool


class Chain:
    """The targets in order; owned by the call's task."""

    def __init__(self, targets: tuple[Target, ...]) -> None:
        self.targets = targets
        self._open = list(range(1, len(targets)))
        self._resorts: list[Resort] = []
        self._failed: list[tuple[Backend, FaultScope, bool]] = []
        self._credentials: dict[str, str] = {}
        self._outgrown: int | None = None

    def chose(self, backend: Backend) -> None:
        """A key was chosen for its provider."""
        if backend.provider is not None and backend.credential is not None:
            self._credentials[backend.provider] = backend.credential

    def failed(self, backend: Backend, scope: FaultScope, *, is_final: bool) -> None:
        """`backend` failed along `scope`; `is_final`: waiting would not help it in this call either."""
        self._failed.append((backend, scope, is_final))

    def forgive(self, backend: Backend) -> None:
        """The key of `backend` was renewed: what failed with it speaks against nobody any more."""
        self._failed = [one for one in self._failed if one[:2] != (backend, FaultScope.CREDENTIAL)]

    def outgrew(self, tokens: int) -> None:
        """The request is too long for a window of so many tokens."""
        self._outgrown = max(tokens, self._outgrown or 0)

    def add_resort(self, resort: Resort) -> None:
        """Keep a target that is left in mind."""
        self._resorts = [other for other in self._resorts if other.index != resort.index] + [resort]

    def is_dead(self, backend: Backend) -> bool:
        """Whether what failed in this call is a failure of `backend` too."""
        return any(is_same(backend, failed, scope) for failed, scope, _ in self._failed)

    def is_lost(self, backend: Backend) -> bool:
        """The same, where waiting does not help."""
        return any(is_final and is_same(backend, failed, scope) for failed, scope, is_final in self._failed)

    def has_next(self, is_free: Callable[[Backend], bool]) -> bool:
        """Whether a target that was not tried could be gone to, as far as is known before its key is."""
        return any(self._may_help(index) and is_free(self.guess(index)) for index in self._open)

    def take_next(self) -> int | None:
        """The next target that was not tried and may help; those before it are passed over for good."""
        while self._open:
            index = self._open.pop(0)
            if self._may_help(index):
                return index
        return None

    def take_resort(self) -> Resort | None:
        """Of the targets that were left and are not lost, the one that may be asked first."""
        usable = [
            resort
            for resort in self._resorts
            if self._is_large_enough(resort.index) and not self.is_lost(resort.backend)
        ]
        best = min(usable, key=lambda resort: resort.until, default=None)
        if best is not None:
            self._resorts.remove(best)
        return best

    def guess(self, index: int) -> Backend:
        """The backend a target is with the key its provider gave last; if there was none, it is not known."""
        target = self.targets[index]
        return target.backend(self._credentials.get(target.provider.name))

    def _may_help(self, index: int) -> bool:
        return self._is_large_enough(index) and not self.is_dead(self.guess(index))

    def _is_large_enough(self, index: int) -> bool:
        window = self.targets[index].window_tokens
        return self._outgrown is None or (window is not None and window > self._outgrown)
