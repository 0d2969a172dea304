"""What was made of kernels is bound by the version's number. Until now it was bound by the name of the kernel's
organisation, so that a rename lost it: such rows are found by the kernel's name, number, source and flags."""

import hashlib

from django.db import migrations


def bind(apps, schema_editor):
    made = apps.get_model("catalog", "Implementation").objects
    versions = apps.get_model("kernels", "KernelVersion").objects
    unbound = made.filter(route__in=("cpp", "cuda"), method="manual", kernel_version=None)
    for route, digest in sorted(set(unbound.values_list("route", "candidate_sha256"))):
        same = unbound.filter(route=route, candidate_sha256=digest)
        number = version_of(versions, same.values_list("candidate", flat=True)[0])
        if number is not None:
            same.update(kernel_version=number)


def version_of(versions, candidate):
    """The number of the version that a candidate of then is; None where there is none. Two organisations may
    have had the very same kernel: the one that has the name, else the first."""
    if not candidate.get("organisation"):  # measured on a bare machine
        return None
    source = candidate.get("source", "")
    found = versions.filter(
        kernel__name=candidate.get("kernel", ""),
        number=candidate.get("version", 0),
        language=candidate.get("language", ""),
        source_sha256=hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest(),
    ).order_by("pk")
    told = (candidate.get("flags", []), candidate.get("launch"))
    alike = [one for one in found.select_related("kernel__organisation") if (one.flags, one.launch) == told]
    named = [one for one in alike if one.kernel.organisation.name == candidate["organisation"]]
    return next((one.pk for one in (*named, *alike)), None)


class Migration(migrations.Migration):
    dependencies = [("kernels", "0004_device_code"), ("catalog", "0025_kernels_by_number")]
    operations = [migrations.RunPython(bind, migrations.RunPython.noop, elidable=True)]
