"""Django's settings. One machine without any: everything below OPATLAS_HOME, SQLite, a file-system broker.

What can be set is in the packages' ``conf.py`` (``docs/configuration.md``); this is what Django makes of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dashboard.project.sqlite  # noqa: F401 - before anything of Django's imports sqlite3

# isort: split
import dj_database_url

from catalog.conf import conf as catalog_conf
from dashboard.conf import conf
from dashboard.operation.logs import logging_settings
from dashboard.project.mailing import mail_settings
from dashboard.project.secret import secret_key
from opatlas.conf import Misconfigured
from opatlas.conf import conf as opatlas_conf
from tuning.conf import conf as tuning_conf

BASE_DIR = Path(__file__).resolve().parent.parent
# All of it is read here, so that a wrong value is told at once and not when it is first needed.
_CONF, _HOME, _BROKER_URL, _ = conf(), catalog_conf().home, tuning_conf().broker_url, opatlas_conf()
_HOME.mkdir(mode=0o700, parents=True, exist_ok=True)
if catalog_conf().proxies and not catalog_conf().proxy_header:
    # None by default: one that the proxies do not write is a client's own.
    raise Misconfigured(
        "OPATLAS_PROXIES needs OPATLAS_PROXY_HEADER: Forwarded, where the proxies append to it; or "
        "X-Forwarded-For, where they do and drop header names with an underscore, as nginx does."
    )

SECRET_KEY = _CONF.secret_key or secret_key(_HOME / "secret_key")
DEBUG = _CONF.debug
ALLOWED_HOSTS = list(_CONF.hosts)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "catalog",
    "tuning",
    "tuning.kernels",
    "tuning.uploads",
    "dashboard",
    "dashboard.billing",
    "dashboard.webhooks",
    "dashboard.notifications",
    "dashboard.operation",
]

MIDDLEWARE = [
    "dashboard.project.timing.ServerTimingMiddleware",
    "dashboard.operation.requests.RequestMiddleware",
    "dashboard.operation.limits.AddressMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "dashboard.operation.security.PolicyMiddleware",
    "dashboard.project.for_pages.WhiteNoiseMiddleware",
    "dashboard.operation.bodies.OpenPagesMiddleware",
    "dashboard.operation.attempts.AttemptsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "dashboard.project.for_pages.CommonMiddleware",
    "dashboard.project.for_pages.AuthenticationMiddleware",
    # DRF's views are outside of it: they ask for keys. Before CSRF's, which reads what a form has sent.
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "dashboard.project.for_pages.PageViewerMiddleware",
    "dashboard.project.for_pages.MessageMiddleware",
    "dashboard.project.auditing.AuditMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "dashboard.project.for_pages.HtmxMiddleware",
    "dashboard.operation.refusing.NotAllowedMiddleware",
]

ROOT_URLCONF = "dashboard.urls"
WSGI_APPLICATION = "dashboard.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": dj_database_url.parse(
        _CONF.database_url or f"sqlite:///{_HOME / 'opatlas.sqlite3'}", conn_max_age=60
    )
}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {
        # A transaction that starts as a reader and then writes cannot wait for the lock: take it first.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
else:
    # A process that was stopped within a transaction, or whose network is gone, must not hold rows for ever,
    # nor wait for ever itself. What DATABASE_URL says of these stands.
    DATABASES["default"]["OPTIONS"] = {
        "options": "-c idle_in_transaction_session_timeout=60s -c tcp_user_timeout=30s",
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        **DATABASES["default"].get("OPTIONS", {}),
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False

STATIC_URL = "static/"
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dashboard.project.finders.PlotlyFinder",
]
STATIC_ROOT = _HOME / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # whitenoise warns of a missing one at every start
# Collected: compressed files under names that contain their content's hash, cached for ever. Otherwise they
# come straight from the source tree.
STATIC_COLLECTED = _CONF.static == "collected"
WHITENOISE_USE_FINDERS = not STATIC_COLLECTED
if STATIC_COLLECTED:
    STORAGES = {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
    }

X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"

DEFAULT_FROM_EMAIL = SERVER_EMAIL = _CONF.email_from
globals().update(mail_settings(_CONF.email_url, _HOME / "mail"))

LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"

CSRF_FAILURE_VIEW = "dashboard.operation.refusing.too_late"

# Sessions and CSRF. OPATLAS_HTTPS=1 behind https: cookies then never travel in the clear.
HTTPS = _CONF.https
SESSION_COOKIE_NAME = "__Host-sessionid" if HTTPS else "sessionid"
CSRF_COOKIE_NAME = "__Host-csrftoken" if HTTPS else "csrftoken"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True  # forms carry the token; no script reads the cookie
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
if HTTPS:
    SECURE_SSL_REDIRECT = True
    # Supervisors and load balancers ask from inside, without TLS.
    SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$", "^metrics$"]
    SECURE_HSTS_SECONDS = _CONF.hsts_s
    SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_AGE = 14 * 24 * 3600
SESSION_EXPIRE_AT_BROWSER_CLOSE = False
PASSWORD_RESET_TIMEOUT = 24 * 3600
_VALIDATORS = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_VALIDATORS}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATORS}.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": f"{_VALIDATORS}.CommonPasswordValidator"},
    {"NAME": f"{_VALIDATORS}.NumericPasswordValidator"},
]
DATA_UPLOAD_MAX_MEMORY_SIZE = 128 << 20  # a model; the API's own limit is far lower

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["catalog.api.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["catalog.api.authentication.MeetsNeeds"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["catalog.api.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "catalog.api.pagination.Pages",
    "DEFAULT_THROTTLE_CLASSES": ["dashboard.operation.limits.KeyThrottle"],
    "EXCEPTION_HANDLER": "catalog.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Opatlas",
    "DESCRIPTION": "The map of the fastest known implementation of every machine-learning operator.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "catalog.api.describing.document_errors",
    ],
    "ENUM_NAME_OVERRIDES": {
        "LookupStatusEnum": "catalog.api.lookup_shapes.STATUSES",
        "AnswerStageEnum": "catalog.models.AnswerStage",
        "ExplorationStageEnum": "tuning.models.Stage",
        "MissStateEnum": "catalog.models.MissState",
        "ExplorationStateEnum": "tuning.models.State",
        "KernelVersionStateEnum": "tuning.kernels.models.VersionState",
        "KernelEvaluationStateEnum": "tuning.kernels.models.EvaluationState",
        "AlertStateEnum": "dashboard.notifications.models.AlertState",
        "AlertSeverityEnum": "dashboard.notifications.models.Severity",
        "WebhookDeliveryStateEnum": "dashboard.webhooks.models.DeliveryState",
    },
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

LOGGING = logging_settings(_CONF.log_format, _CONF.log)
# What counts failed logins: shared by all web processes where there is a Redis, else each one's own.
CACHES: dict[str, dict[str, Any]] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
CACHES["local"] = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "local"}
if _BROKER_URL.startswith(("redis://", "rediss://")):
    CACHES["default"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": _BROKER_URL,
        "KEY_PREFIX": "opatlas",
        "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 1},
    }

# Prices. The class that decides what hits cost; empty: everything is free.
OPATLAS_CHARGING = "dashboard.billing.charging.Billing"
# The routes that a search for operators may name.
OPATLAS_SEARCHED_ROUTES = "tuning.routes.registry.ROUTES"
