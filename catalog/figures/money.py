"""Prices, charges and credit."""

from catalog.figures.base import Figure

MONEY: tuple[Figure, ...] = (
    Figure(
        "charged",
        "Charged",
        "currency",
        "What price rules charged for hits and reported uses, after tiers, caps, plans and limits.",
        "sum of the ledger's charges, their sign turned, over the whole days (UTC) that the range touches",
        "LedgerDay, kept with LedgerEntry",
    ),
    Figure(
        "hits_billed",
        "Hits billed",
        "hits",
        "Hits that a price rule applied to. Each has a ledger entry, even if a cap made it free. Uses "
        "reported at once under one agreement count as one.",
        "count of the ledger's charges over the days; equals the usage rows written to be charged",
        "LedgerDay, kept with LedgerEntry and Usage",
    ),
    Figure(
        "uses_billed",
        "Uses billed",
        "uses",
        "Lookups that were charged: the service's own, and those of clients' caches within an agreement "
        "and its limits. Uses beyond the limits are not charged.",
        "sum of uses over the ledger's charges, of a lookup 1; of a job with a limit over its own",
        "LedgerEntry; JobSpending, kept with it",
    ),
    Figure(
        "spent",
        "Spent",
        "currency",
        "What a job was charged in all under its own spend limit.",
        "sum of the ledger's charges of its lookups with a limit and of reported uses, their sign turned",
        "JobSpending, kept with LedgerEntry",
    ),
    Figure(
        "list_price",
        "List price",
        "currency",
        "What a hit costs by its tier alone, before caps and plans.",
        "price a hit + price a second × calls × (default - served) ÷ 1,000,000, rounded half up",
        "LedgerEntry",
    ),
    Figure(
        "credit",
        "Credit",
        "currency",
        "What an account has. Below zero, it is what the account owes.",
        "sum of the ledger's amounts: payments and corrections less charges and refunds",
        "Account, kept with LedgerEntry",
    ),
    Figure(
        "credited",
        "Paid in",
        "currency",
        "Payments that came in, and credit that was given by hand.",
        "sum of the ledger's credits over the days",
        "LedgerDay, kept with LedgerEntry",
    ),
    Figure(
        "saved_per_unit",
        "Time saved per unit of money",
        "seconds per unit of the currency",
        "How much computing time charged hits saved for each unit that was charged.",
        "sum over charges of calls × (default - served) ÷ sum charged",
        "LedgerDay, kept with LedgerEntry and Usage",
    ),
    Figure(
        "forecast",
        "Forecast for this month",
        "currency",
        "What this month will have been charged by its end, if it goes on like the last week.",
        "charged this month so far + mean of the last 7 whole days × days left of the month",
        "LedgerDay",
    ),
    Figure(
        "withheld_asked",
        "Asked for and withheld",
        "lookups",
        "How often a job asked for an implementation that is withheld until it is paid.",
        "count of lookups' items answered payment_required over the days",
        "Held",
    ),
    Figure(
        "drift",
        "Balances against ledgers",
        "currency",
        "By how much balances differ from the sums of their ledgers. It must be 0.",
        "sum of balances - sum of ledger amounts",
        "Account, LedgerDay; `manage.py check_ledger` reads every LedgerEntry",
    ),
)
