"""Providers on loopback sockets, in a process of their own: the clients' is what is measured."""

from standins.process import Served, serving
from standins.wire import Reply, Request, serve

__all__ = ["Reply", "Request", "Served", "serve", "serving"]
