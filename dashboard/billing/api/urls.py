"""Billing's URLs below /api/v1/."""

from django.urls import URLPattern, URLResolver, path

from dashboard.billing.api.views import account, payments, rules

urlpatterns: list[URLPattern | URLResolver] = [
    path("billing/account", account.AccountView.as_view(), name="billing-account"),
    path("billing/ledger", account.LedgerView.as_view(), name="billing-ledger-list"),
    path("billing/usage", account.UsageView.as_view(), name="billing-usage"),
    path("billing/prices", account.PricesView.as_view(), name="billing-prices"),
    path("billing/rules", rules.RulesView.as_view(), name="billing-rule-list"),
    path("billing/rules/<uuid:line>", rules.RuleView.as_view(), name="billing-rule-versions"),
    path("billing/rules/<uuid:line>/end", rules.EndRuleView.as_view(), name="billing-rule-ending"),
    path("billing/credit", payments.CreditView.as_view(), name="billing-credit-giving"),
    path("billing/payments/<slug:provider>", payments.PaymentView.as_view(), name="billing-payment"),
]
