"""One line per page."""

from django.urls import URLPattern, URLResolver, include, path

from dashboard.operation import metrics, readiness, security
from dashboard.operation.growth import page as growth
from dashboard.pages.jobs import jobs, models, uploads
from dashboard.pages.kernels import kernels
from dashboard.pages.operators import code as operator_code
from dashboard.pages.operators import compare, methods, operator, operators
from dashboard.pages.operators import state as operator_state
from dashboard.pages.overview import definitions, find, health, overview
from dashboard.pages.people import account, audit, forgotten, keys, people
from dashboard.pages.work import environments, explorations, failures, operations, queues

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview.overview, name="overview"),
    path("find/", find.find, name="find"),
    path("overview/live/", overview.live, name="overview-live"),
    path("operators/", operators.operators, name="operators"),
    path("operators/<str:key>/", operator.operator, name="operator"),
    path("operators/<str:key>/code/<int:implementation_id>/", operator_code.code, name="operator-code"),
    path(
        "operators/<str:key>/code/<int:implementation_id>/<slug:part>/raw/",
        operator_code.raw,
        name="operator-raw",
    ),
    path(
        "operators/<str:key>/code/<int:implementation_id>/files/<str:name>",
        operator_code.held_file,
        name="operator-file",
    ),
    path("operators/<str:key>/revoke/", operator.revoke, name="operator-revoke"),
    path("operators/<str:key>/state/", operator_state.state, name="operator-state"),
    path("methods/", methods.methods_page, name="methods"),
    path("compare/", compare.compare_page, name="environments-compare"),
    path("environments/", environments.environments_page, name="environments"),
    path("environments/declare/", environments.declare, name="environment-declare"),
    path("explorations/", explorations.explorations, name="explorations"),
    path("explorations/bulk/", operations.act_on_many, name="explorations-act"),
    path("explorations/<int:pk>/", explorations.exploration, name="exploration"),
    path("explorations/<int:pk>/<slug:verb>/", operations.act, name="exploration-act"),
    path("failures/", failures.failures, name="failures"),
    path("failures/<int:pk>/", failures.failure, name="failure"),
    path("failures/<int:pk>/again/", failures.try_again, name="failure-again"),
    path("queues/", queues.queues_page, name="queues"),
    path("queues/collect/", queues.collect, name="collect"),
    path("queues/collect/bulk/", operations.act_on_misses, name="misses-act"),
    path("queues/collect/<int:pk>/<slug:verb>/", operations.act_on_miss, name="miss-act"),
    path("queues/weight/", operations.weight, name="queue-weight"),
    path("queues/<slug:verb>/", operations.queue, name="queue-act"),
    path("jobs/", jobs.jobs_page, name="jobs"),
    path("jobs/<int:pk>/", jobs.job_page, name="job"),
    path("models/", models.models, name="models"),
    path("models/sample/", models.sample, name="model-sample"),
    path("models/uploads/<int:pk>/", uploads.upload, name="upload"),
    path("models/uploads/<int:pk>/cancel/", uploads.cancel, name="upload-cancel"),
    path("models/<int:pk>/", models.model, name="model"),
    path("kernels/", kernels.kernels, name="kernels"),
    path("kernels/submit/", kernels.submit, name="kernel-submit"),
    path("kernels/<int:pk>/", kernels.kernel, name="kernel"),
    path("kernels/<int:pk>/edit/", kernels.edit, name="kernel-edit"),
    path("kernels/<int:pk>/v<int:number>/", kernels.version, name="kernel-version"),
    path("kernels/<int:pk>/v<int:number>/standing/", kernels.standing, name="kernel-standing"),
    path("kernels/<int:pk>/v<int:number>/<slug:verb>/", kernels.decide, name="kernel-decide"),
    path("billing/", include("dashboard.billing.urls")),
    path("webhooks/", include("dashboard.webhooks.urls")),
    path("people/", people.members, name="people"),
    path("people/invite/", people.invite, name="member-invite"),
    path("people/invitations/<int:pk>/withdraw/", people.withdraw, name="member-uninvite"),
    path("people/<int:pk>/role/", people.change, name="member-role"),
    path("people/<int:pk>/remove/", people.remove, name="member-remove"),
    path("people/accounts/<int:pk>/<slug:verb>/", people.switch_account, name="account-switch"),
    path("people/organisations/", people.organisations, name="organisations"),
    path("keys/", keys.keys, name="keys"),
    path("keys/create/", keys.create, name="key-create"),
    path("keys/<int:pk>/revoke/", keys.revoke, name="key-revoke"),
    path("audit/", audit.audit_log, name="audit"),
    path("growth/", growth.growth_page, name="growth"),
    path("", include("dashboard.notifications.urls")),
    path("definitions/", definitions.definitions, name="definitions"),
    path("login/", account.Login.as_view(), name="login"),
    path("logout/", account.Logout.as_view(), name="logout"),
    path("password/", account.Password.as_view(), name="password"),
    path("forgotten/", forgotten.Forgotten.as_view(), name="forgotten"),
    path("forgotten/<str:uidb64>/<str:token>/", forgotten.Renew.as_view(), name="renew"),
    path("account/", account.account, name="account"),
    path("account/sessions/end/", account.end_sessions, name="end-sessions"),
    path("account/organisation/", account.focus, name="focus"),
    path("invited/<str:token>/", account.invited, name="invited"),
    path("healthz", health.liveness, name="healthz"),
    path("favicon.ico", health.favicon, name="favicon"),
    path("readyz", readiness.readiness, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("csp-report", security.csp_report, name="csp-report"),
]
