"""Exploring: queues, workers, what it cost; and what jobs and models have of it."""

from catalog.figures.base import Figure

WORK: tuple[Figure, ...] = (
    Figure(
        "queue_depth",
        "Queued",
        "explorations",
        "How many explorations wait in an explore queue now.",
        "explorations in the state queued, by capability, stage and priority",
        "Exploration",
    ),
    Figure(
        "queue_oldest",
        "Oldest",
        "time since",
        "When the exploration that has waited longest was asked for.",
        "the earliest asked_at of what is queued",
        "Exploration",
    ),
    Figure(
        "queue_worth",
        "Worth waiting",
        "µs of expected saving",
        "What exploring everything that waits is expected to save.",
        "sum of worth (calls × time × expected gain) of what is queued",
        "Exploration",
    ),
    Figure(
        "queue_ended",
        "Ended",
        "explorations per hour",
        "How many explorations ended within an hour (UTC), whichever way.",
        "explorations with finished_at in the hour, in the states done, unsupported, discarded and dead",
        "Exploration",
    ),
    Figure(
        "queue_first_results",
        "First results",
        "explorations per hour",
        "How many operators got something to serve within an hour (UTC).",
        "explorations with first_result_at in the hour",
        "Exploration",
    ),
    Figure(
        "time_to_drain",
        "Time to drain",
        "seconds, estimated",
        "How long the live workers need for everything that waits now, later stages included.",
        "(queued for a first result × (first result + contest) + queued for a contest × contest + slices of"
        " tuning left × a slice) ÷ live workers; each by the median of its past ones",
        "Exploration, Trial, TuningSlice, Worker",
    ),
    Figure(
        "expected_wait",
        "Expected wait",
        "seconds, estimated",
        "How long an operator that is asked for now waits until a worker takes it.",
        "deal out what goes first to the target's live workers, always to the one with the least to do: "
        "what each holds (Takes the next in), then all first results queued with at least normal "
        "priority, each at the median of its op type's past ones; the wait is the least load that "
        "results, of a capability's targets the longest; it is an upper bound, since organisations take "
        "turns",
        "Exploration, Trial, Worker",
    ),
    Figure(
        "worker_wait",
        "Takes the next in",
        "seconds, estimated",
        "When a worker is expected to take up the next first result.",
        "sum over the explorations that it holds: what is left of a first result; what is left of a "
        "contest or tuning, but at most one piece of it, after which it makes room, and nothing if it has "
        "not begun; each stage takes the median of its op type's past ones",
        "Exploration, Trial, TuningSlice",
    ),
    Figure(
        "first_result_foretold",
        "First results",
        "seconds after the miss",
        "Of operators asked for in the last day: the time to the first result, the time predicted when "
        "they were queued, and the error of the prediction.",
        "medians of first_result_at - asked_at, of expected_first_at - asked_at and of the absolute"
        " difference of the two, over the latest 1,000 whose first result came within 24 hours, foretold",
        "Exploration",
    ),
    Figure(
        "share_portion",
        "Had lately",
        "share of the workers' seconds",
        "Which share of the workers' recent seconds one organisation had. Older seconds count less, by a "
        "half-life.",
        "recent seconds of the organisation ÷ recent seconds of all",
        "WorkerShare",
    ),
    Figure(
        "share_due",
        "Due",
        "share of the workers' seconds",
        "Which share of the workers is due to an organisation with waiting work, by its weight.",
        "its weight ÷ the weights of all that have explorations, evaluations or uploads waiting",
        "WorkerShare, Exploration, KernelEvaluation, Upload",
    ),
    Figure(
        "exploration_eta",
        "Time left",
        "seconds, estimated",
        "When an exploration will end if it takes all of its tuning slices.",
        "deal out what goes before it to the live workers, always to the one with the least to do (what "
        "they hold, its organisation's earlier explorations, the others' turns meanwhile); add what is "
        "left of its stage and the later stages; each stage takes the median of its op type's past ones "
        "(of any, where there are fewer than 3)",
        "Exploration, Trial, TuningSlice, Worker",
    ),
    Figure(
        "exploration_worth",
        "Worth",
        "µs of expected saving",
        "What the next slice of an exploration is expected to save: the order of its queue.",
        "calls × time of one run × expected gain",
        "Exploration",
    ),
    Figure(
        "exploration_spent",
        "Spent",
        "seconds of a worker",
        "What exploring an operator has taken so far.",
        "sum of the seconds of its slices",
        "Exploration",
    ),
    Figure(
        "time_to_first_result",
        "First result",
        "seconds after the miss",
        "How long after it was asked for an operator had something to serve.",
        "first_result_at - asked_at",
        "Exploration",
    ),
    Figure(
        "device_clocks",
        "Its clocks",
        "MHz and °C",
        "What a worker's GPU last reported of its clocks and temperature, and what slowed it down.",
        "NVML's clocks of multiprocessors and memory, temperature and reasons; nothing of it is ever set",
        "Worker",
    ),
    Figure(
        "worker_capacity",
        "Capacity",
        "slices per hour of work",
        "How many slices a worker does in an hour when it is never idle.",
        "3600 s ÷ mean seconds of its latest slices",
        "Trial, TuningSlice",
    ),
    Figure(
        "worker_slices",
        "Slices in the last hour",
        "slices",
        "How many slices of a worker ended within the last 60 minutes.",
        "distinct (exploration, fence) among its latest trials whose last trial ended within the hour",
        "Trial",
    ),
    Figure(
        "collect_depth",
        "Not explored",
        "misses",
        "How many unknown operators were asked for and are not being explored, by reason.",
        "misses by state and reason; waiting and postponed ones may be explored yet",
        "Miss",
    ),
    Figure(
        "miss_worth",
        "Worth",
        "µs of expected saving",
        "What exploring a miss is expected to save, by the current estimate.",
        "calls × roughly estimated time × gain so far of its op type (a tenth where it was only named as"
        " related)",
        "Miss, Best",
    ),
    Figure(
        "job_hit_rate",
        "Hit rate",
        "share of lookups",
        "How often the catalogue had an answer for this job, from the service or from its clients' caches.",
        "hits ÷ (hits + misses), since the job's beginning; every lookup counts, those that a client's memory"
        " or its machine's cache answered as its reports say",
        "JobOperator, JobCacheDay",
    ),
    Figure(
        "job_cached",
        "From caches",
        "share of lookups",
        "How many of a job's lookups its clients' caches answered, so that nobody was asked.",
        "(hits from memory + hits from the machine's cache) ÷ (hits + misses), since the job's beginning",
        "JobCacheDay, JobOperator",
    ),
    Figure(
        "prefetched_used",
        "Prefetched and used",
        "share of operators",
        "How many of the prefetched operators the same process then looked up.",
        "prefetched operators used ÷ prefetched operators, since the job's beginning; those that another "
        "process of the machine used are hits of the machine's cache and none of these",
        "JobCacheDay",
    ),
    Figure(
        "prefetched_wasted",
        "Prefetched in vain",
        "bytes",
        "What was prefetched and has not been used so far.",
        "bytes (answers and manifests, as compact JSON) of prefetched operators - of those used",
        "JobCacheDay",
    ),
    Figure(
        "requests_saved",
        "Requests saved",
        "requests, at most",
        "How many requests prefetching saved, if each operator would have been one request.",
        "prefetched operators used - lookups sent for prefetching alone",
        "JobCacheDay",
    ),
    Figure(
        "job_saved",
        "Time saved",
        "µs",
        "How much longer the job's calls would have taken with the defaults, by measured times.",
        "sum over hits of calls × (default's time - served time)",
        "JobDay, JobOperator (counted with Usage)",
    ),
    Figure(
        "job_speedup",
        "Against the defaults",
        "times as fast",
        "How many times as fast the job's hits are as with the defaults.",
        "sum of calls × default's time ÷ sum of calls × served time, over hits",
        "JobDay (counted with Usage)",
    ),
    Figure(
        "coverage_operators",
        "Operators covered",
        "share of distinct operators",
        "How many of the operators asked for would hit now, where the job or model runs. Operators that "
        "are withheld until they are paid do not count.",
        "operators with a best there that is not withheld ÷ operators asked for",
        "JobOperator or ModelOperator, Best",
    ),
    Figure(
        "coverage_calls",
        "Calls covered",
        "share of calls",
        "The same, weighed by calls.",
        "calls of operators with a best there that is not withheld ÷ calls of all; a model's calls include"
        " those that have no canonical form",
        "JobOperator or ModelOperator, Best",
    ),
    Figure(
        "model_saved",
        "Saved per run",
        "µs of one run",
        "How much less time one run of the model takes than with the defaults, over the known operators.",
        "sum of calls × (default's time - best's time)",
        "ModelOperator, Best",
    ),
    Figure(
        "model_speedup",
        "Speed-up of what is known",
        "times as fast",
        "How many times as fast one run of a model is as with the defaults, over the known operators.",
        "sum of calls × default's time ÷ sum of calls × best's time",
        "ModelOperator, Best",
    ),
)
