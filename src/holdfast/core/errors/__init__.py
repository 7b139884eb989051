"""Every error Holdfast raises: one class per code, grouped by tens, each with title and fix.

HoldfastError
├── ConfigError                    HF010
│   ├── UnusableUrl                HF011
│   ├── MissingExtra               HF012
│   ├── InvalidIdentifier          HF013
│   ├── ShardPairInvalid           HF014
│   ├── UnsafeBind                 HF015
│   ├── UnknownVariable            HF016
│   ├── HeartbeatTooSlow           HF017
│   ├── ShutdownTooLong            HF018
│   └── ReaperTooSlow              HF019
├── RegistryError
│   ├── UnknownJobType             HF020
│   ├── DuplicateJobType           HF021
│   ├── HandlerInvalid             HF026
│   ├── InvalidName                HF027
│   └── SubscriptionNotFound       HF028
├── PayloadError
│   ├── InputInvalid               HF022
│   ├── PayloadTooLarge            HF023
│   ├── PayloadNotEncodable        HF024
│   └── OutputInvalid              HF025
├── TransactionError
│   ├── NoTransaction              HF030
│   ├── TransactionAborted         HF031  retryable
│   ├── ConnectionClosed           HF032  retryable
│   ├── UnsupportedConnection      HF033
│   └── KeyConflict                HF034  retryable
├── DatabaseError
│   ├── WrongDatabase              HF040
│   ├── SchemaTooOld               HF041
│   ├── SchemaTooNew               HF042
│   ├── DatabaseUnreachable        HF043  retryable
│   │   └── DatabaseReadOnly       HF048  retryable
│   ├── DatabaseBusy               HF044  retryable
│   ├── CopiedDatabase             HF045
│   ├── RoleRefused                HF046
│   └── SchemaChanged              HF047
├── AttemptError
│   ├── LeaseLost                  HF050  retryable
│   ├── Aborted                    HF051  retryable
│   ├── Busy                       HF052  retryable
│   ├── Permanent                  HF053
│   ├── AlreadyCompleting          HF054
│   └── CircularWait               HF055
├── ChainError
│   ├── ChainNotFound              HF060
│   ├── JobNotFound                HF061
│   ├── ChainFailed                HF062
│   ├── ChainCancelled             HF063
│   ├── ChainDeleted               HF064
│   ├── WaitTimeout                HF065  retryable
│   ├── StillReferenced            HF066  retryable
│   ├── WrongState                 HF067
│   │   └── NotTerminal            HF068
│   └── WorkerNotFound             HF069
├── InvalidOption                  HF073
├── QueryError
│   ├── FilterError                HF070
│   ├── InvalidCursor              HF071
│   └── InvalidId                  HF072
├── ScheduleError
│   ├── InvalidDuration            HF080
│   └── InvalidSchedule            HF081
├── CycleError
│   ├── CycleNotFound              HF082
│   ├── DuplicateCycle             HF083
│   └── ServiceCallFailed          HF084  retryable
├── RequestError
│   ├── BadRequest                 HF074
│   ├── BodyTooLarge               HF075
│   ├── Changed                    HF076
│   ├── NoSuchRoute                HF077
│   └── UnsupportedMedia           HF078
├── Refused                        HF090
├── Unauthenticated                HF095
├── CrossSite                      HF096
├── TokenNotFound                  HF097
├── RateLimited                    HF098  retryable
└── CommandError
    ├── CommandUsage               HF091
    ├── AppNotLoaded               HF092
    ├── NotConfirmed               HF093
    ├── CheckNotMet                HF094
    └── SystemRefused              HF099
"""

from holdfast.core.errors.base import (
    Explanation,
    HoldfastError,
    explanations,
)
from holdfast.core.errors.configuration import (
    ConfigError,
    HeartbeatTooSlow,
    InvalidIdentifier,
    MissingExtra,
    ReaperTooSlow,
    ShardPairInvalid,
    ShutdownTooLong,
    UnknownVariable,
    UnsafeBind,
    UnusableUrl,
)
from holdfast.core.errors.database import (
    ConnectionClosed,
    CopiedDatabase,
    DatabaseBusy,
    DatabaseError,
    DatabaseReadOnly,
    DatabaseUnreachable,
    KeyConflict,
    NoTransaction,
    RoleRefused,
    SchemaChanged,
    SchemaTooNew,
    SchemaTooOld,
    TransactionAborted,
    TransactionError,
    UnsupportedConnection,
    WrongDatabase,
)
from holdfast.core.errors.jobs import (
    Aborted,
    AlreadyCompleting,
    AttemptError,
    Busy,
    ChainCancelled,
    ChainDeleted,
    ChainError,
    ChainFailed,
    ChainNotFound,
    CircularWait,
    CycleError,
    CycleNotFound,
    DuplicateCycle,
    JobNotFound,
    LeaseLost,
    NotTerminal,
    Permanent,
    ServiceCallFailed,
    StillReferenced,
    WaitTimeout,
    WorkerNotFound,
    WrongState,
)
from holdfast.core.errors.requests import (
    AppNotLoaded,
    BadRequest,
    BodyTooLarge,
    Changed,
    CheckNotMet,
    CommandError,
    CommandUsage,
    CrossSite,
    FilterError,
    InvalidCursor,
    InvalidDuration,
    InvalidId,
    InvalidOption,
    InvalidSchedule,
    NoSuchRoute,
    NotConfirmed,
    QueryError,
    RateLimited,
    Refused,
    RequestError,
    ScheduleError,
    SystemRefused,
    TokenNotFound,
    Unauthenticated,
    UnsupportedMedia,
)
from holdfast.core.errors.types import (
    DuplicateJobType,
    HandlerInvalid,
    InputInvalid,
    InvalidName,
    OutputInvalid,
    PayloadError,
    PayloadNotEncodable,
    PayloadTooLarge,
    RegistryError,
    SubscriptionNotFound,
    UnknownJobType,
)

__all__ = [
    "Aborted",
    "AlreadyCompleting",
    "AppNotLoaded",
    "AttemptError",
    "BadRequest",
    "BodyTooLarge",
    "Busy",
    "ChainCancelled",
    "ChainDeleted",
    "ChainError",
    "ChainFailed",
    "ChainNotFound",
    "Changed",
    "CheckNotMet",
    "CircularWait",
    "CommandError",
    "CommandUsage",
    "ConfigError",
    "ConnectionClosed",
    "CopiedDatabase",
    "CrossSite",
    "CycleError",
    "CycleNotFound",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseReadOnly",
    "DatabaseUnreachable",
    "DuplicateCycle",
    "DuplicateJobType",
    "Explanation",
    "FilterError",
    "HandlerInvalid",
    "HeartbeatTooSlow",
    "HoldfastError",
    "InputInvalid",
    "InvalidCursor",
    "InvalidDuration",
    "InvalidId",
    "InvalidIdentifier",
    "InvalidName",
    "InvalidOption",
    "InvalidSchedule",
    "JobNotFound",
    "KeyConflict",
    "LeaseLost",
    "MissingExtra",
    "NoSuchRoute",
    "NoTransaction",
    "NotConfirmed",
    "NotTerminal",
    "OutputInvalid",
    "PayloadError",
    "PayloadNotEncodable",
    "PayloadTooLarge",
    "Permanent",
    "QueryError",
    "RateLimited",
    "ReaperTooSlow",
    "Refused",
    "RegistryError",
    "RequestError",
    "RoleRefused",
    "ScheduleError",
    "SchemaChanged",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServiceCallFailed",
    "ShardPairInvalid",
    "ShutdownTooLong",
    "StillReferenced",
    "SubscriptionNotFound",
    "SystemRefused",
    "TokenNotFound",
    "TransactionAborted",
    "TransactionError",
    "Unauthenticated",
    "UnknownJobType",
    "UnknownVariable",
    "UnsafeBind",
    "UnsupportedConnection",
    "UnsupportedMedia",
    "UnusableUrl",
    "WaitTimeout",
    "WorkerNotFound",
    "WrongDatabase",
    "WrongState",
    "explanations",
]
