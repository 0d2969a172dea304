"""Billing's URLs below /api/v1/."""

from django.urls import URLPattern, URLResolver, path

from dashboard.billing.api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("billing/account", views.AccountView.as_view(), name="billing-account"),
    path("billing/ledger", views.LedgerView.as_view(), name="billing-ledger-list"),
    path("billing/usage", views.UsageView.as_view(), name="billing-usage"),
    path("billing/prices", views.PricesView.as_view(), name="billing-prices"),
    path("billing/rules", views.RulesView.as_view(), name="billing-rule-list"),
    path("billing/rules/<uuid:line>", views.RuleView.as_view(), name="billing-rule-versions"),
    path("billing/rules/<uuid:line>/end", views.EndRuleView.as_view(), name="billing-rule-ending"),
    path("billing/credit", views.CreditView.as_view(), name="billing-credit-giving"),
    path("billing/payments/<slug:provider>", views.PaymentView.as_view(), name="billing-payment"),
]
