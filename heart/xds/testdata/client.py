"""Calls a component and prints how many calls each replica answered (JSON).

Usage: client.py COMPONENT CALLS, with GRPC_XDS_BOOTSTRAP_CONFIG set.
"""

import collections
import json
import sys

import grpc

component, calls = sys.argv[1], int(sys.argv[2])
with grpc.insecure_channel("xds:///" + component) as channel:
    call = channel.unary_unary("/heartbed.Test/Call")
    # The answer is a StringValue: a tag, a length, the replica's name.
    names = [call(b"", timeout=20)[2:].decode() for _ in range(calls)]
print(json.dumps(collections.Counter(names)))
