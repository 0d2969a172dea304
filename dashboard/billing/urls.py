"""One line per page."""

from django.urls import URLPattern, URLResolver, path

from dashboard.billing.pages import account, entry, ledger, prices

urlpatterns: list[URLPattern | URLResolver] = [
    path("", account.billing, name="billing"),
    path("ledger/", ledger.ledger, name="billing-ledger"),
    path("ledger/<int:pk>/", entry.ledger_entry, name="billing-entry"),
    path("organisations/<int:pk>/", account.billing_of, name="billing-of"),
    path("organisations/<int:pk>/credit/", account.credit, name="billing-credit"),
    path("organisations/<int:pk>/plan/", account.plan, name="billing-plan"),
    path("spending/<int:pk>/end/", account.end_spending, name="billing-spending-end"),
    path("prices/", prices.rules, name="billing-rules"),
    path("prices/new/", prices.new_rule, name="billing-rule-new"),
    path("prices/<uuid:line>/", prices.rule, name="billing-rule"),
    path("prices/<uuid:line>/end/", prices.end_rule, name="billing-rule-end"),
]
