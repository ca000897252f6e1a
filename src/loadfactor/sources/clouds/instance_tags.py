"""Tags and labels of a cloud's instances as rules of tagging read them."""

from collections.abc import Mapping

from loadfactor.sources.kubernetes.tags import choose_texts, write_tags


def write_instance_tags(name: str, tags: Mapping[str, str]) -> str | None:
    """The column `tags`: each as tag.KEY, and what the instance is called as `job_name`; nothing secret.

    >>> write_instance_tags("train-1", {"team": "nlp", "api_key": "x"})
    '{"job_name": "train-1", "tag.team": "nlp"}'
    """
    chosen = {f"tag.{key.removeprefix('label.')}": value for key, value in choose_texts(tags, {}).items()}
    return write_tags({"job_name": name, **chosen})
