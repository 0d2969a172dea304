"""Everything that writes to the catalogue. Views, workers and pages call these, never ``save``."""

from catalog.selectors.served import Accepts, Hit, scopes_of
from catalog.services.artifacts import artifact_files, file_path, store_artifact
from catalog.services.draining import drain_journal
from catalog.services.keys import SCOPES, authenticate, create_api_key, revoke_api_key
from catalog.services.lookups import Asked, LookupAnswer, LookupRequest, Result, is_served, lookup
from catalog.services.publishing import Evidence, NewResult, Paired, Published, publish
from catalog.services.registry import (
    check_setting,
    default_organisation,
    register_environment,
    register_operator,
    register_operators,
    register_setting,
    register_target,
)
from catalog.services.standing import Place
from catalog.services.withdrawing import restore_places, set_aside, withdraw

__all__ = [
    "SCOPES",
    "Accepts",
    "Asked",
    "Evidence",
    "Hit",
    "LookupAnswer",
    "LookupRequest",
    "NewResult",
    "Paired",
    "Place",
    "Published",
    "Result",
    "artifact_files",
    "authenticate",
    "check_setting",
    "create_api_key",
    "default_organisation",
    "drain_journal",
    "file_path",
    "is_served",
    "lookup",
    "publish",
    "register_environment",
    "register_operator",
    "register_operators",
    "register_setting",
    "register_target",
    "restore_places",
    "revoke_api_key",
    "scopes_of",
    "set_aside",
    "store_artifact",
    "withdraw",
]
