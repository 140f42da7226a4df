"""Things named on the command line as `module:name`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from operator import attrgetter
from typing import Any

from noetic_ray.cli.common import bad_usage, say
from noetic_ray.models.protocol import Model
from noetic_ray.steps import Step


def load_step(target: str) -> Step[Any, Any]:
    """The step a target names; whatever is wrong with it is a usage error."""
    found = load(target, "MODULE:AGENT")
    if not isinstance(found, Step):
        what = f"{target} is {type(found).__name__}, not a step; make one with @nr.step"
        bad_usage(what, "MODULE:AGENT")
    return found


def load_model(target: str) -> Model:
    """The model provider a target names, or makes when it is a class or a function."""
    found = load(target, "--model-provider")
    is_model = isinstance(found, Model) and not isinstance(found, type)
    made = found() if callable(found) and not is_model else found
    if not isinstance(made, Model):
        bad_usage(f"{target} is no model provider: it has no `generate`", "--model-provider")
    return made


def load(target: str, parameter: str) -> Any:
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        bad_usage(f"{target!r} is not of the form module:name", parameter)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            bad_usage(f"there is no module {module_name!r} in {here} or installed", parameter)
        bad_usage(f"module {module_name!r} needs {error.name!r}, which is missing", parameter)
    except Exception as error:
        say(traceback.format_exc().rstrip())
        bad_usage(f"module {module_name!r} does not load: {error!r}", parameter)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        bad_usage(f"module {module_name!r} has no {name!r}", parameter)
