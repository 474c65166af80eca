"""The file of credentials as the doctor sees it: whether it can be used, and whose keys are in it. Changes nothing."""

from __future__ import annotations

import os
import stat
from typing import Final

from .credential_file import CredentialFile, CredentialProblem
from .doctor_findings import Finding, fail, ok
from .home import Home

CREDENTIALS: Final = "credentials"


def check_credentials(home: Home) -> tuple[frozenset[str], list[Finding]]:
    """The providers that have something in the file, and what there is to say about it; nothing where there is none."""
    file = CredentialFile(home)
    try:
        found = os.lstat(file.path)
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            says = f"{file.path} is not closed to others (mode {mode}): take its keys for known to them"
            return frozenset(), [fail(CREDENTIALS, says, f"chmod 0600 {file.path}; replace the keys")]
        names = file.names()
    except FileNotFoundError:
        return frozenset(), []
    except CredentialProblem as problem:
        return frozenset(), [fail(CREDENTIALS, f"{problem.file} {problem.problem}", problem.remedy)]
    except OSError as error:
        return frozenset(), [fail(CREDENTIALS, f"{file.path}: {error.strerror}", "make it readable for you alone")]
    return names, [ok(CREDENTIALS, f"{file.path} has keys of {', '.join(sorted(names)) or 'nobody'}")]
