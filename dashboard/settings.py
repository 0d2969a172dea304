"""Django's settings. One machine without any: everything below OPATLAS_HOME, SQLite, a file-system broker.

Environment: OPATLAS_HOME (state folder, default ``var``), DATABASE_URL, BROKER_URL, OPATLAS_STORE (artifact
store), OPATLAS_SECRET_KEY, OPATLAS_HOSTS (comma-separated), OPATLAS_DEBUG=1, OPATLAS_STATIC=collected.
"""

from __future__ import annotations

import os
from pathlib import Path

import dashboard.sqlite  # noqa: F401 - before anything of Django's imports sqlite3

# isort: split
import dj_database_url

from dashboard.secret import secret_key

BASE_DIR = Path(__file__).resolve().parent.parent
OPATLAS_HOME = Path(os.environ.get("OPATLAS_HOME", BASE_DIR / "var")).resolve()
OPATLAS_HOME.mkdir(parents=True, exist_ok=True)
OPATLAS_STORE = Path(os.environ.get("OPATLAS_STORE", OPATLAS_HOME / "artifacts")).resolve()

SECRET_KEY = os.environ.get("OPATLAS_SECRET_KEY") or secret_key(OPATLAS_HOME / "secret_key")
DEBUG = os.environ.get("OPATLAS_DEBUG") == "1"
ALLOWED_HOSTS = os.environ.get("OPATLAS_HOSTS", "127.0.0.1,localhost,[::1]").split(",")

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
    "dashboard",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    # DRF's views are outside of it: they ask for keys.
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
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
        os.environ.get("DATABASE_URL") or f"sqlite:///{OPATLAS_HOME / 'opatlas.sqlite3'}", conn_max_age=60
    )
}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {
        # A transaction that starts as a reader and then writes cannot wait for the lock: take it first.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False

STATIC_URL = "static/"
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "dashboard.finders.PlotlyFinder",
]
STATIC_ROOT = OPATLAS_HOME / "static"
STATIC_ROOT.mkdir(exist_ok=True)  # whitenoise warns of a missing one at every start
# OPATLAS_STATIC=collected (after `collectstatic` with the same): compressed files under names that contain
# their content's hash, cached for ever. Otherwise they come straight from the source tree.
STATIC_COLLECTED = os.environ.get("OPATLAS_STATIC") == "collected"
WHITENOISE_USE_FINDERS = not STATIC_COLLECTED
if STATIC_COLLECTED:
    STORAGES = {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
    }

LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
DATA_UPLOAD_MAX_MEMORY_SIZE = 128 << 20  # a model; the API's own limit is far lower

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["catalog.api.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["catalog.api.authentication.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["catalog.api.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "catalog.api.pagination.Pages",
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
    "ENUM_NAME_OVERRIDES": {"LookupStatusEnum": "catalog.api.serializers.STATUSES"},
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

BROKER_URL = os.environ.get("BROKER_URL", "")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": os.environ.get("OPATLAS_LOG", "INFO")},
}
