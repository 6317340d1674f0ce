"""Which device a rank has."""
import os


def mine(count):
    """Its number, of so many. With SHARE_DEVICES in the environment ranks share them, where there are too few: NCCL
    accepts that only of ranks that it takes for other hosts'. To be asked before NCCL is used."""
    local_rank = int(os.environ["LOCAL_RANK"])
    if not os.environ.get("SHARE_DEVICES"):
        return local_rank
    os.environ["NCCL_HOSTID"] = f"rank-{os.environ['RANK']}"
    return local_rank % count
