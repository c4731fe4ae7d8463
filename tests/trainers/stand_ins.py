"""Stands in for packages that the trainers' modules import and that Debian does not have: names that can be imported, called, used as
decorators and inherited from, and do nothing. A trainer's own modules are never stood in for."""
import importlib.abc
import importlib.machinery
import sys
import types


class Nothing(type):
    """Any attribute of it is another; calling it gives itself, or what it decorates. Classes that inherit from it are classes."""

    def __getattr__(cls, name):
        if name == "__get_pydantic_core_schema__":
            from pydantic_core import core_schema
            return lambda *_: core_schema.any_schema()
        if name.startswith("__"):
            raise AttributeError(name)
        return named(name)

    def __call__(cls, *given, **more):
        if "stands_in" not in vars(cls):
            return super().__call__(*given, **more)
        return given[0] if len(given) == 1 and not more and callable(given[0]) else cls

    def __getitem__(cls, _):
        return cls

    def __or__(cls, _):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())

    def __add__(cls, other):
        return other

    def __bool__(cls):
        return False


def named(name):
    return Nothing(name, (), {"stands_in": True})


class Module(types.ModuleType):
    makes = staticmethod(named)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = self.makes(name)
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nobody else found, of the packages named."""

    def __init__(self, packages, makes):
        self.packages, self.makes = set(packages), makes

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.packages and name.rpartition(".")[2].islower():     # else it is a name in a real module
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        made = Module(spec.name)
        made.makes = self.makes
        made.__path__ = []
        made.__version__ = "9.9.9"
        return made

    def exec_module(self, module):
        pass


def install(packages, makes=named):
    """makes(name): what an attribute of such a module is."""
    sys.meta_path.append(Finder(packages, makes))
