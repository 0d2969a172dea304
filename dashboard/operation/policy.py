"""What browsers may do with our pages: the two headers of every answer, made once. Plain data."""

from __future__ import annotations

REPORTS = "/csp-report"
_SELF, _NONE = "'self'", "'none'"

# Everything comes from ourselves, and no script or style stands in a page: what somebody smuggles into one is
# not run. A constant, so that a lookup pays for no more than a header.
POLICY = "; ".join(
    f"{name} {value}"
    for name, value in {
        "default-src": _NONE,
        "script-src": _SELF,
        "style-src": _SELF,
        "img-src": f"{_SELF} data:",
        "font-src": _SELF,
        "connect-src": _SELF,
        "worker-src": _SELF,
        "manifest-src": _SELF,
        "form-action": _SELF,
        "frame-ancestors": _NONE,
        "base-uri": _NONE,
        "object-src": _NONE,
        "report-uri": REPORTS,
    }.items()
)

PERMISSIONS = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer",
        "browsing-topics",
        "camera",
        "display-capture",
        "geolocation",
        "gyroscope",
        "magnetometer",
        "microphone",
        "midi",
        "payment",
        "usb",
    )
)
