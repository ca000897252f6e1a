"""Tags from a job's environment: the run that it is to an experiment tracker, and variables that people name."""

from collections.abc import Iterable, Mapping
from typing import Final

EXPERIMENT: Final = "LOADFACTOR_EXPERIMENT"
_VARIABLES: Final = {
    "WANDB_PROJECT": "wandb.project",
    "WANDB_RUN_GROUP": "wandb.run_group",
    "WANDB_RUN_ID": "wandb.run_id",
    "MLFLOW_EXPERIMENT_ID": "mlflow.experiment_id",
    "MLFLOW_EXPERIMENT_NAME": "mlflow.experiment_name",
    "MLFLOW_RUN_ID": "mlflow.run_id",
}
"""Variables that W&B and MLflow read, and what rules call them."""
_LABELS: Final = {name.lower(): tag for name, tag in _VARIABLES.items()}
_OF_A_VARIABLE: Final = "job_env_"
"""The beginning of labels that the agent makes of other variables of a job."""
_LONGEST: Final = 200


def tag_variables(variables: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The tags of an environment; variables that are nobody's run are left out. Of a name that comes twice the first counts.

    >>> tag_variables([("WANDB_PROJECT", "llm"), ("LOADFACTOR_EXPERIMENT", "e7"), ("HOME", "/root")])
    {'wandb.project': 'llm', 'env.LOADFACTOR_EXPERIMENT': 'e7'}
    """
    tags: dict[str, str] = {}
    for name, value in variables:
        tag = f"env.{EXPERIMENT}" if name == EXPERIMENT else _VARIABLES.get(name)
        if tag is not None and value:
            tags.setdefault(tag, value[:_LONGEST])
    return tags


def tag_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The tags in the labels of a series, their names in lower case, as the agent writes them.

    >>> tag_labels({"gpu": "0", "mlflow_run_id": "1f", "job_env_sweep": "7"})
    (('env.SWEEP', '7'), ('mlflow.run_id', '1f'))
    """
    found = []
    for name, value in labels.items():
        if name in _LABELS and value:
            found.append((_LABELS[name], value[:_LONGEST]))
        elif name.startswith(_OF_A_VARIABLE) and value:
            found.append((f"env.{name.removeprefix(_OF_A_VARIABLE).upper()}", value[:_LONGEST]))
    return tuple(sorted(found))
