"""The catalogue's rows."""

from catalog.models.accounts import (
    ApiKey,
    AuditEntry,
    Invitation,
    Membership,
    OnlyAddedTo,
    Organisation,
    Role,
    SignIn,
)
from catalog.models.asked import (
    UNNAMED,
    Job,
    JobCacheDay,
    JobDay,
    JobOperator,
    JobPlace,
    Miss,
    MissState,
    Model,
    ModelOperator,
    StoredStructure,
)
from catalog.models.failing import StepFailure
from catalog.models.known import (
    SAME_KEY,
    SHARED,
    AnswerStage,
    Artifact,
    Best,
    BestChange,
    DeclaredEnvironment,
    Environment,
    Implementation,
    MachineCode,
    Measurement,
    Method,
    Operator,
    Purpose,
    ScopedKey,
    ScrubPass,
    Setting,
    Signer,
    Target,
)
from catalog.models.planned import PlanMeasured, PlanTimeline, StoredPlan
from catalog.models.predicted import PredictorNetwork, Succession
from catalog.models.recalled import Recall
from catalog.models.rollups import (
    EVERYBODY,
    STANDINGS,
    TRAFFIC,
    Grain,
    OperatorTotal,
    Rollup,
    RouteSlot,
    StaleHour,
    Standing,
    TrafficSlot,
)
from catalog.models.served import (
    ClosedUsage,
    JournalSegment,
    KeptAnswer,
    LookupTally,
    Usage,
)
