"""`ncclguard …` and `python -m ncclguard …`: the command, which lies beside this file."""
import os
import sys


def main():
    command = os.path.join(os.path.dirname(os.path.realpath(__file__)), "ncclguard")
    try:
        os.execv(command, ["ncclguard", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"ncclguard: {command}: {error.strerror}\n"
                 "ncclguard: install the wheel again, the one for this kind of machine")


if __name__ == "__main__":
    main()
