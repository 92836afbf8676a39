"""What a store says when things are not as they should be, and that it says it in time."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lessor import Client, ConfigError, StoreUnavailable
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Release, Released, Renew, Renewed, Unknown
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import StoreURL
from lessor.stores.etcd import EtcdStore
from lessor.stores.etcd.members import Members
from lessor.stores.etcd.trouble import explain
from lessor.testing.conformance.base import Thread, pass_time, taken, until
from tests.needs import not_here
from tests.servers import free_port
from tests.servers.etcd import EtcdServer, etcd_cluster, etcd_server
from tests.servers.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lessor.core.ops import Outcome
    from lessor.stores.etcd.wire import Wire


def ask(url: str, timeout: float = 5) -> Outcome:
    store = EtcdStore(StoreURL.parse(url), SYSTEM)
    try:
        return store.apply([Acquire("job", "a", "me", 30 * SECOND)], timeout=timeout)[0]
    finally:
        store.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("etcd://a/path", "an etcd:// URL has no path"),
        ("etcd://a:99999", "port"),
        ("etcd://a,,b", "without a name"),
        ("etcd://user@a", "without a password"),
        ("etcd://a?ca=x", "no option 'ca'; there are: namespace, password_env, password_file"),
        ("etcds://a?ca=/no/such/file", "certificates"),
        ("etcds://a?verify=perhaps", "true or false"),
    ],
)
def test_urls_that_can_not_work(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        EtcdStore(StoreURL.parse(url), SYSTEM)


def test_what_is_shown_has_no_password() -> None:
    store = EtcdStore(StoreURL.parse("etcd://user:secret@a,[::1]:1?namespace=n"), SYSTEM)
    assert store.url == "etcd://a:2379,[::1]:1/?namespace=n"
    assert "secret" not in repr(store)
    store.close()


def test_nobody_there() -> None:
    answer = ask(f"etcd://127.0.0.1:{free_port()},127.0.0.1:{free_port()}")
    assert isinstance(answer, Unknown)
    assert "can't be reached" in str(answer.error)


def test_another_member_is_there(server: EtcdServer, namespace: str) -> None:
    url = f"etcd://127.0.0.1:{free_port()},127.0.0.1:{server.port}?namespace={namespace}"
    assert isinstance(ask(url), Granted)


def test_a_server_that_swallows_everything_is_given_up_in_time(server: EtcdServer, namespace: str) -> None:
    with Tunnel(server.port) as tunnel:
        store = EtcdStore(StoreURL.parse(f"etcd://127.0.0.1:{tunnel.port}?namespace={namespace}"), SYSTEM)
        taken(store, "job", 30, "a")
        tunnel.swallow()
        start = SYSTEM.now()
        answer = store.apply([Acquire("other", "b", "me", SECOND)], timeout=1)[0]
        assert isinstance(answer, Unknown)
        assert "no answer in time" in str(answer.error)
        with pytest.raises(StoreUnavailable):
            store.read(["job"], timeout=1)
        assert (SYSTEM.now() - start) / SECOND < 60
        tunnel.mend()
        assert store.apply([Release("job", "a")], timeout=5) == [Released()]
        store.close()


def test_a_release_whose_answer_got_lost_is_found_to_be_done(server: EtcdServer, namespace: str) -> None:
    """The first try is left without an answer; the second one, at another member, finds what became of it."""
    with Tunnel(server.port) as tunnel:
        url = f"etcd://127.0.0.1:{tunnel.port},127.0.0.1:{server.port}?namespace={namespace}"
        store = EtcdStore(StoreURL.parse(url), SYSTEM)
        taken(store, "job", 30, "a")
        server.stop()
        releasing = Thread(lambda: store.apply([Release("job", "a")], timeout=4))
        pass_time(0.3)
        tunnel.swallow()
        server.go_on()
        until(lambda: server.ask("kv/range", {"key": "YQ=="}) is not None, "an answer")
        assert releasing.result() == [Released()]
        store.close()


def test_no_quorum_is_told(namespace: str) -> None:
    with etcd_cluster() as cluster:
        store = EtcdStore(StoreURL.parse(f"{cluster.url}?namespace={namespace}"), SYSTEM)
        taken(store, "job", 30)
        for member in cluster.members[:2]:
            member.kill()
        answer = store.apply([Acquire("other", "b", "me", SECOND)], timeout=3)[0]
        assert isinstance(answer, Unknown)
        assert isinstance(answer.error, StoreUnavailable)
        for member in cluster.members[:2]:
            cluster.start(member, wait=False)
        for member in cluster.members:
            member.wait()
        until(lambda: isinstance(store.apply([Acquire("other", "b", "me", SECOND)], timeout=3)[0], Granted), "recovery")
        store.close()


def test_a_restart_that_forgets_the_etcd_leases_that_we_keep(server: EtcdServer, store: EtcdStore) -> None:
    """A spare one that is gone is noticed, and another one taken."""
    taken(store, "job", 30, "a")
    store.apply([Release("job", "a")], timeout=5)
    for lease in server.ask("lease/leases", {})["leases"]:
        server.ask("lease/revoke", {"ID": lease["ID"]})
    taken(store, "job", 30, "b")
    assert store.apply([Release("job", "b")], timeout=5) == [Released()]


class Overloaded:
    """Answers as a member does that can't keep up with what was agreed on: so many times, and then does its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        exchange = Members._exchange

        def answer(members: Members, wire: Wire, *args: Any) -> list[list[bytes]]:
            if self.left:
                self.left -= 1
                raise explain("etcdserver: too many requests", wire.node)
            return exchange(members, wire, *args)

        monkeypatch.setattr(Members, "_exchange", answer)


def test_a_member_with_too_many_requests_is_not_the_last_word(
    server: EtcdServer, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another try, at another member where there is one, may find less to do; a lease is not lost by it."""
    token = taken(store, "job", 30, "a").token
    overloaded = Overloaded(monkeypatch, 1)
    assert isinstance(store.apply([Renew("job", "a", token, 30 * SECOND)], timeout=5)[0], Renewed)
    overloaded.left = 1
    assert store.apply([Release("job", "a")], timeout=5) == [Released()]
    overloaded.left = 1
    assert taken(store, "job", 30, "b").token > token
    overloaded.left = 1
    assert store.read(["job"], timeout=5) != [None]
    assert overloaded.left == 0


def test_too_many_requests_all_the_time_is_told_as_what_it_is(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    Overloaded(monkeypatch, 1_000_000)
    answer = store.apply([Acquire("job", "a", "me", 30 * SECOND)], timeout=1)[0]
    assert isinstance(answer, Unknown)
    assert isinstance(answer.error, StoreUnavailable)
    assert "has too many requests to do" in str(answer.error)


def test_a_compaction_disturbs_nobody_who_holds_or_waits(server: EtcdServer, namespace: str) -> None:
    url = f"{server.url}?namespace={namespace}"
    with Client(url) as one, Client(url) as other:
        lease = one.acquire("job", ttl=5)
        waiting = Thread(lambda: other.acquire("job", ttl=5, wait=20))
        until(lambda: bool((record := one.get("job")) and record.queue), "the waiter")
        revision = server.ask("kv/range", {"key": "YQ=="})["header"]["revision"]
        server.ask("kv/compaction", {"revision": revision, "physical": True})
        server.ctl("defrag")
        lease.check()
        lease.release()
        newer = waiting.result()
        assert newer.token > lease.token
        newer.release()


# --- watching ---------------------------------------------------------------------------------------------------------


def test_a_watch_goes_on_where_it_was(server: EtcdServer, namespace: str) -> None:
    """Nothing missed and nothing repeated, whatever happened while nobody was connected."""
    with Tunnel(server.port) as tunnel:
        watcher = EtcdStore(StoreURL.parse(f"etcd://127.0.0.1:{tunnel.port}?namespace={namespace}"), SYSTEM)
        store = EtcdStore(StoreURL.parse(f"{server.url}?namespace={namespace}"), SYSTEM)
        subscription = watcher.subscribe("")
        tokens = [taken(store, "r/0", 30).token]
        assert [event.token for event in subscription.get(5) or ()] == tokens  # type: ignore[union-attr]
        assert subscription._wire is not None
        tunnel.swallow()
        tokens = [taken(store, f"r/{n}", 30).token for n in range(1, 5)]
        subscription._wire.wake()
        tunnel.mend()
        heard: list[int] = []

        def all_heard() -> bool:
            heard.extend(event.token for event in subscription.get(1) or ())  # type: ignore[union-attr]
            return len(heard) >= len(tokens)

        until(all_heard, "the events")
        assert heard == tokens
        assert subscription.get(0.2) == []
        subscription.close()
        watcher.close()
        store.close()


def test_a_watch_says_when_its_history_was_compacted(server: EtcdServer, store: EtcdStore) -> None:
    subscription = store.subscribe("")
    taken(store, "a", 30)
    assert len(subscription.get(5) or ()) == 1
    subscription._lose()
    taken(store, "b", 30)
    revision = taken(store, "c", 30).token
    server.ask("kv/compaction", {"revision": str(revision), "physical": True})
    answers = [subscription.get(1) for _ in range(3)]
    assert None in answers
    taken(store, "d", 30)
    until(lambda: [event.resource for event in subscription.get(1) or ()] == ["d"], "the next event")
    subscription.close()


def test_closing_wakes_the_listener(store: EtcdStore) -> None:
    subscription = store.subscribe("")
    listening = Thread(lambda: subscription.get(60))
    pass_time(0.1)
    subscription.close()
    assert listening.result(5) == []


# --- logging in, and TLS ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """A server that wants a user, who may do what leases need and nothing else; its logins last 2 s."""
    with etcd_server("--auth-token-ttl", "2") as server:
        for words in (
            ("user", "add", "root:top"),
            ("user", "grant-role", "root", "root"),
            ("role", "add", "leases"),
            ("role", "grant-permission", "leases", "--prefix=true", "readwrite", "/lessor/default/"),
            ("user", "add", "me:se%cret"),
            ("user", "grant-role", "me", "leases"),
            ("auth", "enable"),
        ):
            server.ctl(*words)
        yield server


def test_a_user_with_the_least_permissions(guarded: EtcdServer) -> None:
    """Also when the login has expired."""
    url = guarded.url.replace("//", "//me:se%25cret@")
    with Client(url) as client:
        for _ in range(2):
            with client.acquire("job", ttl=5) as lease:
                pass_time(4)
                lease.check()
                assert client.get("job") is not None


@pytest.mark.parametrize(
    ("login", "query", "says"),
    [
        ("me:wrong@", "", "refuses the user name or password: mend the URL"),
        ("", "", "wants a user"),
        ("me:se%25cret@", "?namespace=elsewhere", "let its role read and write"),
    ],
)
def test_a_login_that_can_not_work(guarded: EtcdServer, login: str, query: str, says: str) -> None:
    answer = ask(guarded.url.replace("//", f"//{login}") + query)
    assert isinstance(answer, Unknown)
    assert isinstance(answer.error, ConfigError)
    assert says in str(answer.error)
    assert "secret" not in str(answer.error)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the server and one for a client, of one authority."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ("-newkey", "rsa:2048", "-nodes")
    commands: list[tuple[str, ...]] = [
        ("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    ]
    for name in ("server", "client"):
        commands += [
            ("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"),
            (
                "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", "names",
            ),
        ]  # fmt: skip
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for command in commands:
        try:
            subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
        except FileNotFoundError:
            not_here("openssl is not installed")
    return folder


@pytest.fixture(scope="module")
def encrypted(certificates: Path) -> Iterator[EtcdServer]:
    """A server that wants certificates of its clients."""
    settings = (
        "--cert-file", f"{certificates}/server.pem", "--key-file", f"{certificates}/server.key",
        "--client-cert-auth", "--trusted-ca-file", f"{certificates}/ca.pem",
    )  # fmt: skip
    with etcd_server(*settings, tls=True) as server:
        yield server


def test_tls_with_certificates_on_both_sides(encrypted: EtcdServer, certificates: Path) -> None:
    url = f"{encrypted.url}?ca={certificates}/ca.pem&cert={certificates}/client.pem&key={certificates}/client.key"
    until(lambda: isinstance(ask(url), Granted), "the server's start")
    with Client(url) as client, client.acquire("other", ttl=5, wait=10) as lease:
        waiting = Thread(lambda: client.acquire("other", ttl=5, wait=10))
        until(lambda: bool(client.get("other").queue), "the waiter")  # type: ignore[union-attr]
        lease.release()
        waiting.result().release()


def test_tls_that_can_not_work(encrypted: EtcdServer, certificates: Path) -> None:
    untrusted = ask(f"{encrypted.url}?cert={certificates}/client.pem&key={certificates}/client.key")
    assert isinstance(untrusted, Unknown)
    assert isinstance(untrusted.error, ConfigError)
    assert "certificate" in str(untrusted.error)
    assert isinstance(ask(f"{encrypted.url}?ca={certificates}/ca.pem"), Unknown)
    assert isinstance(ask(encrypted.url.replace("etcds", "etcd")), Unknown)


# --- threads ----------------------------------------------------------------------------------------------------------


def test_many_threads_on_one_store(store: EtcdStore) -> None:
    """Each gets what is its own, whoever's request carried it."""
    start = threading.Barrier(16)

    def work(number: int) -> None:
        start.wait()
        for turn in range(10):
            lease_id = f"{number}-{turn}"
            granted = taken(store, f"r/{number}", 30, lease_id)
            renewed = store.apply([Renew(f"r/{number}", lease_id, granted.token, 30 * SECOND)], timeout=20)[0]
            assert isinstance(renewed, Renewed)
            assert store.apply([Release(f"r/{number}", lease_id)], timeout=20) == [Released()]

    for thread in [Thread(lambda n=n: work(n)) for n in range(16)]:  # type: ignore[misc]
        thread.result(60)


def test_threads_about_one_resource(open_store: Callable[[], EtcdStore]) -> None:
    """Of those who ask at the same time, one gets it."""
    stores = [open_store() for _ in range(4)]
    for turn in range(10):
        start = threading.Barrier(8)

        def ask_once(number: int, turn: int = turn, start: threading.Barrier = start) -> Outcome:
            start.wait()
            op = Acquire(f"job/{turn}", f"{number}", "me", 30 * SECOND)
            return stores[number % 4].apply([op], timeout=20)[0]

        threads = [Thread(lambda n=n: ask_once(n)) for n in range(8)]  # type: ignore[misc]
        outcomes = [thread.result(30) for thread in threads]
        assert sum(isinstance(outcome, Granted) for outcome in outcomes) == 1


def test_a_password_from_the_environment(guarded: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_PASSWORD", "se%cret")
    with Client(guarded.url.replace("//", "//me@") + "?password_env=ETCD_PASSWORD") as client:
        client.acquire("by environment", ttl=5).release()


def test_tls_to_a_port_without_tls_says_so(guarded: EtcdServer) -> None:
    answer = ask(guarded.url.replace("etcd://", "etcds://"))
    assert isinstance(answer, Unknown)
    assert "doesn't answer in TLS: is this a port without TLS?" in str(answer.error)
