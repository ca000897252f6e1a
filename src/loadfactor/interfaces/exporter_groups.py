"""Groups of exporters as the configuration names them, and as they are asked."""

import ssl

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.exporter_check import AskedGroup
from loadfactor.collect.exporter_page import ExporterAccess
from loadfactor.collect.target_finders import (
    FileTargets,
    ListedTargets,
    NamedTargets,
    TargetDefaults,
    TargetFinder,
    drop_repeated,
    split_address,
)
from loadfactor.settings.exporters import ExporterGroup, ServingEngines


def make_finder(group: ExporterGroup) -> TargetFinder:
    """What finds its exporters. Raises InputError where an address is none."""
    job = group.job if isinstance(group, ServingEngines) else group.name
    defaults = TargetDefaults(group.default_port, group.path, group.scheme == "https", job)
    if group.dns:
        if not group.dns.startswith("_"):
            split_address(group.dns, group.default_port)
        return NamedTargets(group.dns, defaults)
    if group.file_sd:
        return FileTargets(group.file_sd, defaults)
    return ListedTargets(drop_repeated([defaults.read(address) for address in group.targets]))


def make_access(group: ExporterGroup) -> ExporterAccess:
    """How they are asked. Raises InputError where the certificates cannot be read."""
    try:
        tls = ssl.create_default_context(cafile=group.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"ca_file {group.ca_file} of {group.label} cannot be read: {error.strerror or error}"
        ) from error
    return ExporterAccess(group.bearer_token_file, tls, group.timeout_s)


def make_asked_group(group: ExporterGroup) -> AskedGroup:
    """How `check` asks it. Raises InputError as the others."""
    where = group.dns or ", ".join(group.file_sd or group.targets)
    is_serving = isinstance(group, ServingEngines)
    return AskedGroup(group.label, where, make_finder(group), make_access(group), group.every_s, is_serving)
