#!/usr/bin/env python3
"""A Python program that calls NCCL from every kind of Python code, and writes down what Python itself says of where.

    framed_python.py FOLDER RANK CODES

Each rank writes FOLDER/framed-R.json: of each of its calls, in order, the innermost frames as [file, qualified name,
line]. CODES code objects are made and dropped on the way. Then RANK sleeps for ever in a nested function, and the
others wait for it. Run by spawn.
"""
import functools
import json
import os
import sys
import threading
import time
from ctypes import byref, c_void_p

from python_ranks import COUNT, INT32, RANK, SIZE, SUM, check, cuda, nccl, unique_id

FRAMES = 8
comm, stream, buffer = c_void_p(), c_void_p(), c_void_p()
called = []


def note(frame):
    """What Python says of the caller's frames."""
    frames = []
    while frame and len(frames) < FRAMES:
        frames.append([frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno])
        frame = frame.f_back
    called.append(frames)


def call():
    """On one line, as it is the line of the call."""
    note(sys._getframe()), check(nccl.ncclAllReduce(buffer, buffer, COUNT, INT32, SUM, comm, stream))


def recurse(depth):
    if depth:
        recurse(depth - 1)
    else:
        call()


def generate():
    for step in range(3):
        call()
        yield step


async def wait():
    call()


def run(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        pass


class Model:
    class Layer:
        def forward(self):
            call()

        @property
        def size(self):
            call()
            return 1

        @staticmethod
        def shared():
            call()

    def __init__(self):
        self.layers = [Model.Layer(), Model.Layer()]

    def forward(self):
        for layer in self.layers:
            layer.forward()

        def hook():
            call()
        hook()
        return (lambda: call())()

    def __del__(self):
        call()


def several_lines():
    check(
        call() or
        0)
    try:
        raise ValueError(call())
    except ValueError:
        call()
    finally:
        call()


def sort_keys():
    """From C back into Python."""
    sorted([3, 1, 2], key=lambda number: call() or number)
    list(map(functools.partial(lambda self, number: call(), None), [1]))
    [call() for _ in range(2)]
    {number: call() for number in range(2)}
    sum(call() or number for number in range(2))


def execute(source, file, scope):
    exec(compile(source, file, "exec"), scope)


def odd_names():
    scope = {"call": call}
    for file in ("<string>", "/a/" + "folder/" * 60 + "file.py", "/ä/ö/größe.py", "/模型/訓練.py", "/😀/" + "😀" * 70 + ".py",
                 "/ä" * 150 + ".py", ""):
        for name in ("plain", "n" * 400, "größe", "計算", "計算" * 100, "ℼ" * 20):
            execute(f"\n\ndef {name}():\n    if True:\n        call()\n\n{name}()\n", file, scope)
            execute(f"class C{name}:\n  def f(self):\n    call()\nC{name}().f()\n", file, scope)


def many_codes(count):
    """One after another at the same addresses: some are alike but for one thing."""
    for number in range(count):
        lines = "\n" * (number % 7)
        execute(f"def made_{number // 3:04}():\n{lines}  call()\nmade_{number // 3:04}()\n",
                f"/made/{number // 40:03}.py", {"call": call})


def long_function():
    body = "\n".join("    total = total + 1" for _ in range(2500))
    execute(f"def long():\n    total = 0\n    call()\n{body}\n    call()\nlong()\n", "/made/long.py", {"call": call})


def in_thread():
    thread = threading.Thread(target=recurse, args=(2,))
    thread.start()
    while thread.is_alive():
        thread.join(0.01)


def train(codes):
    call()
    recurse(3)
    recurse(12)
    for _ in generate():
        call()
    run(wait())
    model = Model()
    model.forward()
    Model.Layer.shared()
    model.layers[0].size
    del model
    several_lines()
    sort_keys()
    in_thread()
    odd_names()
    long_function()
    many_codes(codes)
    check(cuda.cudaStreamSynchronize(stream))


def finish(folder, stuck):
    def load_batch():
        def wait_for_data():
            while True:
                time.sleep(1)
        wait_for_data()

    with open(f"{folder}/framed-{RANK}.json", "w") as file:
        json.dump(called, file)
    if RANK == stuck:
        load_batch()
    check(nccl.ncclAllReduce(buffer, buffer, COUNT, INT32, SUM, comm, stream))
    check(cuda.cudaStreamSynchronize(stream))


check(cuda.cudaSetDevice(int(os.environ.get("LOCAL_RANK", 0))))
check(nccl.ncclCommInitRank(byref(comm), SIZE, unique_id(), RANK))
check(cuda.cudaStreamCreate(byref(stream)))
check(cuda.cudaMalloc(byref(buffer), 4 * COUNT))
train(int(sys.argv[3]))
finish(sys.argv[1], int(sys.argv[2]))
