"""Providers on loopback sockets, in a process of their own: the clients' is what is measured."""

from loopback.process import Served, serving
from loopback.wire import Reply, Request, serve

__all__ = ["Reply", "Request", "Served", "serve", "serving"]
