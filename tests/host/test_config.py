"""The variables: which are read, which are refused, and that the table of them is complete."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
import torch.distributed as dist

from fairring import backend, config, facts
from fairring.config import MIB, Config, ConfigError


def read(**variables: str) -> Config:
    return Config.from_environment(variables)


def test_defaults_are_those_of_the_table() -> None:
    settings = read()
    assert settings == Config()
    rows = {row.name: row.default for row in config.VARIABLES}
    assert settings.total_memory == config.size("", rows["FAIRRING_TOTAL_MEMORY"])
    assert settings.slice_size == config.size("", rows["FAIRRING_SLICE_SIZE"])
    assert settings.heartbeat_timeout == config._seconds("", rows["FAIRRING_HEARTBEAT_TIMEOUT"])
    assert settings.transports == config._transports("", rows["FAIRRING_TRANSPORT"])
    assert settings.lanes == config._lanes("", rows["FAIRRING_LANES"])


def test_every_variable_of_ours_has_a_field_and_every_field_of_ours_a_row() -> None:
    names = {row.name for row in config.VARIABLES}
    read_by = {field.metadata["variable"] for field in fields(Config)}
    assert names <= read_by
    assert {name for name in read_by if name.startswith(config.PREFIX)} <= names


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("26214400", 25 * MIB),
        ("25MiB", 25 * MIB),
        ("25 mib", 25 * MIB),
        ("64KiB", 64 << 10),
        ("1.5GiB", 3 << 29),
        ("2GB", 2 * 10**9),
        ("10kb", 10_000),
        ("0.1KB", 100),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes_are_bytes_or_have_a_unit(text: str, size: int) -> None:
    assert read(FAIRRING_TOTAL_MEMORY=text).total_memory == size


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("2.5", 2.5), ("0.1s", 0.1), ("3 s", 3), ("86400", 86400)])
def test_times_are_seconds(text: str, seconds: float) -> None:
    assert read(FAIRRING_HEARTBEAT_TIMEOUT=text).heartbeat_timeout == seconds


@pytest.mark.parametrize("text", ["0", "0.05", "-1", "86401", "1m", "1e3", "soon", "٣"])
def test_a_time_that_is_none_is_an_error_with_name_value_and_range(text: str) -> None:
    with pytest.raises(ConfigError, match=r"FAIRRING_HEARTBEAT_TIMEOUT.*0\.1 to 86400") as caught:
        read(FAIRRING_HEARTBEAT_TIMEOUT=text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["0", "-1", "25 M", "MiB", "1e6", "9223372036854775808", "0.1B", "1,5GiB", "٣x"])
@pytest.mark.parametrize("name", ["FAIRRING_TOTAL_MEMORY", "FAIRRING_SLICE_SIZE"])
def test_a_size_that_is_none_is_an_error_with_name_value_and_range(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**{name: text})
    assert name in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "2^63-1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "transport"),
    [
        ("auto", "auto"),
        ("tcp", "tcp"),
        ("verbs", "verbs"),
        ("tensorpipe", "uv"),
        ("tensorpipe:uv", "uv"),
        ("tensorpipe:shm", "shm"),
        ("tensorpipe:ibv", "ibv"),
    ],
)
def test_transports(text: str, transport: str) -> None:
    assert read(FAIRRING_TRANSPORT=text).transports == (transport, transport)


@pytest.mark.parametrize(
    ("text", "transports"),
    [
        ("rail=tensorpipe:ibv,site=tcp", ("ibv", "tcp")),
        ("site=tensorpipe, rail=tcp", ("tcp", "uv")),
        ("site=tcp", ("auto", "tcp")),
    ],
)
def test_levels_may_have_transports_of_their_own(text: str, transports: tuple[str, str]) -> None:
    assert read(FAIRRING_TRANSPORT=text).transports == transports


@pytest.mark.parametrize("text", ["rack=tcp", "rail=tcp,rail=tcp", "rail=tcp,uv", "site=tcp,"])
def test_other_levels_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match=r"FAIRRING_TRANSPORT=.*rail=\.\.\. or site="):
        read(FAIRRING_TRANSPORT=text)


def test_ranks_that_differ_in_a_level_differ_in_their_agreement() -> None:
    texts = {read(FAIRRING_TRANSPORT=text).agreement("1") for text in ("tcp", "site=tcp", "rail=tcp,site=tcp")}
    assert len(texts) == 2


def test_sites() -> None:
    assert read().site == ""
    settings = read(FAIRRING_SITE="north", FAIRRING_SITE_IFNAME="eth1,eth2")
    assert (settings.site, settings.site_interfaces) == ("north", ("eth1", "eth2"))


@pytest.mark.parametrize(
    "text", ["rail=verbs,site=tensorpipe:ibv", "rail=tensorpipe:ibv,site=verbs", "site=tensorpipe:ibv"]
)
def test_two_transports_for_rdma_in_one_group_are_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"verbs, by name or auto, on one level and for tensorpipe:ibv.*tcp for one"):
        read(FAIRRING_TRANSPORT=text)
    assert read(FAIRRING_TRANSPORT="rail=verbs,site=tcp").transports == ("verbs", "tcp")


@pytest.mark.parametrize(
    "text", ["udp", "tcp:uv", "tcp:", "verbs:1", "tensorpipe:", "tensorpipe:tcp", "TCP", "auto:uv"]
)
def test_other_transports_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match=f"FAIRRING_TRANSPORT='{text}'.*tensorpipe:uv"):
        read(FAIRRING_TRANSPORT=text)


def test_lanes() -> None:
    assert read(FAIRRING_LANES="1").lanes == (1, 1)
    assert read(FAIRRING_LANES=" 16 ").lanes == (16, 16)
    assert read(FAIRRING_LANES="site=4").lanes == (1, 4)


@pytest.mark.parametrize("text", ["0", "17", "-1", "two", "1.5", "٣"])
def test_other_numbers_of_lanes_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match=r"FAIRRING_LANES=.*1 to 16"):
        read(FAIRRING_LANES=text)


def test_helpers_follow_the_cores_unless_they_are_given() -> None:
    assert read().helpers is None
    assert [read(FAIRRING_HELPERS=text).helpers for text in ("0", " 8 ")] == [0, 8]
    assert [read(LOCAL_WORLD_SIZE=text).ranks_here for text in ("4", "many")] == [4, 0]


@pytest.mark.parametrize("text", ["9", "-1", "auto", "1.5", "٣"])
def test_other_numbers_of_helpers_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match=r"FAIRRING_HELPERS=.*0 to 8"):
        read(FAIRRING_HELPERS=text)


def test_a_trial_decides_on_cuda_unless_a_user_does_alike_on_all_ranks() -> None:
    assert read().cuda.use == "auto"
    assert read(FAIRRING_CUDA="on").cuda == ("on", None)
    assert read(FAIRRING_CUDA="auto:4MiB").cuda == ("auto", 4 << 20)
    assert read(FAIRRING_CUDA="host").cuda == ("host", None)
    assert "FAIRRING_CUDA=on " in read(FAIRRING_CUDA="on").agreement("1")
    assert "FAIRRING_CUDA=on:65536 " in read(FAIRRING_CUDA="on:64KiB").agreement("1")
    assert "FAIRRING_CUDA=auto " in read().agreement("1")


@pytest.mark.parametrize("text", ["yes", "off:1MiB", "host:1MiB", "auto:", "auto:small", "auto:0"])
def test_other_uses_of_cuda_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match=f"FAIRRING_CUDA='?{text.partition(':')[0]}|FAIRRING_CUDA='.*' is not a size"):
        read(FAIRRING_CUDA=text)


def test_an_error_is_raised_or_ends_the_process() -> None:
    assert read().on_error == "auto"
    assert read(FAIRRING_ON_ERROR="raise").on_error == "raise"
    assert read(FAIRRING_ON_ERROR="exit").on_error == "exit"
    with pytest.raises(ConfigError, match=r"FAIRRING_ON_ERROR='abort' is neither auto, raise nor exit"):
        read(FAIRRING_ON_ERROR="abort")


def test_ports() -> None:
    assert read().ports == (0, 0)
    assert read(FAIRRING_PORTS="29600-29700").ports == (29600, 29700)
    assert read(FAIRRING_PORTS="1-1").ports == (1, 1)


def test_traces_go_to_a_directory_that_is_made_for_them(tmp_path) -> None:
    assert read().trace is None
    wanted = tmp_path / "a" / "b"
    assert read(FAIRRING_TRACE=str(wanted)).trace == wanted
    assert list(wanted.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"FAIRRING_TRACE=.*no directory to write to"):
        read(FAIRRING_TRACE=str(tmp_path / "file"))


@pytest.mark.parametrize("text", ["29600", "2-1", "0-10", "1-65536", "a-b", "1-2-3", "-1"])
def test_ports_that_are_none_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match=r"FAIRRING_PORTS=.*1-65535"):
        read(FAIRRING_PORTS=text)


def test_a_secret_file_must_be_there_and_hold_enough(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(ConfigError, match=r"FAIRRING_SECRET_FILE=.*can't be read"):
        read(FAIRRING_SECRET_FILE=str(path))
    path.write_bytes(b"x" * 15)
    with pytest.raises(ConfigError, match="holds only 15 bytes"):
        read(FAIRRING_SECRET_FILE=str(path))
    path.write_bytes(b"x" * 16)
    assert read(FAIRRING_SECRET_FILE=str(path)).secret_file == path


def tls(folder: Path, **changes: str) -> dict[str, str]:
    variables = {"FAIRRING_TLS": "on"}
    for name in ("CERTIFICATE", "KEY", "CA"):
        (folder / name).write_text("PEM")
        variables[f"FAIRRING_TLS_{name}"] = str(folder / name)
    return {**variables, **changes}


def test_tls_needs_its_three_files_and_they_need_tls(tmp_path: Path) -> None:
    settings = read(**tls(tmp_path))
    assert settings.tls
    assert settings.tls_certificate == tmp_path / "CERTIFICATE"
    assert settings.tls_key == tmp_path / "KEY"
    assert settings.tls_authority == tmp_path / "CA"
    assert "FAIRRING_TLS=on" in settings.agreement("1")
    assert "FAIRRING_TLS=off" in read(FAIRRING_TLS="off").agreement("1")
    for name in ("FAIRRING_TLS_CERTIFICATE", "FAIRRING_TLS_KEY", "FAIRRING_TLS_CA"):
        with pytest.raises(ConfigError, match=f"FAIRRING_TLS=on needs {name}"):
            read(**tls(tmp_path, **{name: ""}))
        with pytest.raises(ConfigError, match=f"{name}=.*without FAIRRING_TLS=on"):
            read(**{name: str(tmp_path / "KEY")})
        with pytest.raises(ConfigError, match=f"{name}=.*can't be read"):
            read(**tls(tmp_path, **{name: str(tmp_path / "nowhere")}))


def test_tls_is_on_or_off_and_for_tcp_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"FAIRRING_TLS='1' is neither on nor off"):
        read(FAIRRING_TLS="1")
    with pytest.raises(ConfigError, match=r"FAIRRING_TLS=on can't be had with FAIRRING_TRANSPORT=tensorpipe"):
        read(**tls(tmp_path, FAIRRING_TRANSPORT="tensorpipe:ibv"))
    with pytest.raises(ConfigError, match=r"FAIRRING_TLS=on can't be had with .*verbs, which have no TLS"):
        read(**tls(tmp_path, FAIRRING_TRANSPORT="verbs"))


def test_an_unknown_variable_is_an_error_that_knows_what_was_meant() -> None:
    with pytest.raises(ConfigError, match=r"FAIRRING_SLICE_SIZES='1'.*did you mean FAIRRING_SLICE_SIZE\?"):
        read(FAIRRING_SLICE_SIZES="1")
    with pytest.raises(ConfigError, match=r"FAIRRING_XYZZY.*FAIRRING_TOTAL_MEMORY, "):
        read(FAIRRING_XYZZY="")


def test_other_programs_variables_are_none_of_our_business() -> None:
    assert read(FAIRLY_ODD="1", PATH="/bin", fairring_x="1") == Config()


def test_an_empty_variable_is_as_if_unset() -> None:
    assert read(FAIRRING_PORTS="", FAIRRING_TOTAL_MEMORY="") == Config()


def test_the_interface_and_the_master_are_torchs_variables() -> None:
    settings = read(TP_SOCKET_IFNAME="eth1", MASTER_ADDR="node0", MASTER_PORT="29500")
    assert settings.interfaces == ("eth1",)
    borrowed = read(GLOO_SOCKET_IFNAME="eth1, eth2", NCCL_SOCKET_IFNAME="^docker,lo")
    assert (borrowed.gloo_interfaces, borrowed.nccl_interfaces) == (("eth1", "eth2"), "^docker,lo")
    assert (settings.master_address, settings.master_port) == ("node0", 29500)


@pytest.mark.parametrize("text", ["http://10.0.0.1:29510", "10.0.0.1:29510", "http://[fe80::1]:29510/"])
def test_the_lighthouse_is_torchfts_variable(text: str) -> None:
    host = "fe80::1" if "[" in text else "10.0.0.1"
    assert read(TORCHFT_LIGHTHOUSE=text).lighthouse == (host, 29510)


@pytest.mark.parametrize("text", ["http://10.0.0.1:port", "http://[10.0.0.1:29510"])
def test_a_lighthouse_that_has_no_address_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"TORCHFT_LIGHTHOUSE=.* is no address \(.*\); give one as in http://"):
        read(TORCHFT_LIGHTHOUSE=text)


def test_the_way_is_to_the_stores_master_else_to_the_lighthouse_else_to_the_master() -> None:
    of_replica = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    with_lighthouse = read(TORCHFT_LIGHTHOUSE="http://10.0.0.1:29510", **of_replica)
    assert backend._way_to_others(with_lighthouse, dist.HashStore()) == ("10.0.0.1", 29510)
    assert backend._way_to_others(read(**of_replica), dist.HashStore()) == ("localhost", 29500)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert backend._way_to_others(with_lighthouse, dist.PrefixStore("p", store)) == ("127.0.0.1", store.port)


def test_a_config_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        read().total_memory = 1  # type: ignore[misc]


def test_the_agreement_tells_settings_apart_that_ranks_must_share() -> None:
    texts = {
        read(**variables).agreement("0.1")
        for variables in (
            {},
            {"FAIRRING_TOTAL_MEMORY": "1GiB"},
            {"FAIRRING_SLICE_SIZE": "1MiB"},
            {"FAIRRING_TRANSPORT": "tcp"},
            {"FAIRRING_TRANSPORT": "tensorpipe:uv"},
            {"FAIRRING_TRANSPORT": "tensorpipe:shm"},
            {"FAIRRING_LANES": "2"},
        )
    }
    assert len(texts) == 7
    assert read().agreement("0.1") != read().agreement("0.2")
    assert read(FAIRRING_MACHINE="a").agreement("0.1") == read(FAIRRING_TRANSPORT="auto").agreement("0.1")


def test_only_config_reads_the_environment() -> None:
    """The rule covers modules that run in a job. The lab, the benchmarks, `fairring check` and `fairring trace` start
    processes, and pass on the variables that there are.

    CUDA's hardware queues are a variable that Fairring sets. The flight recorder's variable belongs to torch, and so
    does that by which it makes an NCCL.
    """
    others = ("config.py", "hardware_queues.py", "flight_recorder.py", "backend.py")
    package = Path(config.__file__).parent
    for path in package.rglob("*.py"):
        starts_processes = {"lab", "bench", "check"} & set(path.parts) or path == package / "trace" / "command.py"
        if path.name not in others and not starts_processes:
            assert "os.environ" not in path.read_text(), path
    for path in (package.parents[1] / "csrc").rglob("*.cc"):
        assert "getenv" not in path.read_text(), path


def test_the_address_of_an_interface_is_its_own() -> None:
    assert facts.address_of("lo") == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"TP_SOCKET_IFNAME='nosuch0'.*there are:.*lo"):
        facts.address_of("nosuch0")


def test_the_machine_is_the_same_when_asked_again() -> None:
    assert facts.machine() == facts.machine()
    assert facts.machine().count("/") == 2
