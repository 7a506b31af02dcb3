//! Fenced writes against a real server.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use lease_conformance::servers::redis::{RedisServer, RedisUrl, Reply};
use lease_core::{AdmitError, Gate, Key, StoreErrorKind, Token};
use lease_redis::{ADMIT_LUA, FencedScript, RedisGate, ScriptError, stale_token};
use redis::Value;
use redis::aio::MultiplexedConnection;

/// No keys, or no arguments.
const NONE: Option<&str> = None;

type TestGate = RedisGate<MultiplexedConnection>;

fn plain() -> RedisServer {
    RedisServer::builder().start().unwrap()
}

async fn connect(url: &RedisUrl) -> MultiplexedConnection {
    let client = redis::Client::open(url.to_string()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// By the server's administrator, apart from what is tested.
fn text(server: &RedisServer, words: &[&str]) -> Option<String> {
    match server.command(words).unwrap() {
        Reply::Nil => None,
        Reply::Integer(number) => Some(number.to_string()),
        reply => reply.text().map(str::to_owned),
    }
}

async fn gate(server: &RedisServer) -> (TestGate, Key) {
    let gate = RedisGate::new(connect(&server.url()).await);
    (gate, Key::new("user:7").unwrap())
}

fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}

fn stale<T: std::fmt::Debug>(refused: Result<T, AdmitError>) -> (u64, u64) {
    match refused {
        Err(AdmitError::Stale(stale)) => (stale.presented.get(), stale.admitted.get()),
        other => panic!("not stale: {other:?}"),
    }
}

fn kind<T: std::fmt::Debug>(refused: Result<T, AdmitError>) -> (StoreErrorKind, String) {
    match refused {
        Err(AdmitError::Store(error)) => (error.kind(), error.to_string()),
        other => panic!("no failure of the store: {other:?}"),
    }
}

#[tokio::test]
async fn a_stale_token_writes_nothing() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    gate.admit(&user, token(5)).await.unwrap();
    gate.admit(&user, token(5)).await.unwrap();
    gate.set(&user, token(5), "profile", "blue").await.unwrap();
    assert_eq!(gate.hset(&user, token(6), "h", ("a", 1)).await.unwrap(), 1);
    let pairs = [("a", 2), ("b", 3)];
    assert_eq!(gate.hset(&user, token(6), "h", &pairs).await.unwrap(), 1);

    let refused = gate.set(&user, token(5), "profile", "red").await;
    assert_eq!(stale(refused), (5, 6));
    let refused = gate.set_expiring(&user, token(5), "profile", "red", Duration::from_secs(9));
    assert_eq!(stale(refused.await), (5, 6));
    assert_eq!(
        stale(gate.hset(&user, token(5), "h", ("a", 9)).await),
        (5, 6)
    );
    assert_eq!(
        stale(gate.del(&user, token(5), &["profile", "h"]).await),
        (5, 6)
    );
    assert_eq!(stale(gate.admit(&user, token(1)).await), (1, 6));
    assert_eq!(text(&server, &["GET", "profile"]).unwrap(), "blue");
    assert_eq!(text(&server, &["HGET", "h", "a"]).unwrap(), "2");
    assert_eq!(
        text(&server, &["GET", "leases:gate:{user:7}"]).unwrap(),
        "6"
    );
    assert_eq!(
        text(&server, &["TTL", "leases:gate:{user:7}"]).unwrap(),
        "-1"
    );

    assert_eq!(
        gate.del(&user, token(6), &["profile", "h", "none"])
            .await
            .unwrap(),
        2
    );
    // Another resource, and another prefix, are other gates.
    gate.admit(&Key::new("user:8").unwrap(), token(1))
        .await
        .unwrap();
    let other = gate.prefix("mine").unwrap();
    other
        .set(&user, token(1), "profile", "green")
        .await
        .unwrap();
    assert_eq!(text(&server, &["GET", "mine:gate:{user:7}"]).unwrap(), "1");
}

#[tokio::test]
async fn values_expire_and_marks_do_not_unless_told() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    let lifetime = Duration::from_millis(60_000);
    gate.set_expiring(&user, token(1), "k", "v", lifetime)
        .await
        .unwrap();
    let left: i64 = text(&server, &["PTTL", "k"]).unwrap().parse().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(
        text(&server, &["PTTL", &gate.mark_name(&user)]).unwrap(),
        "-1"
    );

    let forgetful = gate
        .clone()
        .forget_after(Duration::from_secs(3600))
        .unwrap();
    forgetful.admit(&user, token(1)).await.unwrap();
    let left: i64 = text(&server, &["PTTL", &gate.mark_name(&user)])
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=3_600_000).contains(&left), "{left}");
    // A gate that keeps its marks keeps them, whoever wrote them.
    gate.admit(&user, token(1)).await.unwrap();
    assert_eq!(
        text(&server, &["PTTL", &gate.mark_name(&user)]).unwrap(),
        "-1"
    );
    assert!(gate.clone().forget_after(Duration::ZERO).is_err());
    let zero = gate
        .set_expiring(&user, token(1), "k", "v", Duration::ZERO)
        .await;
    assert_eq!(kind(zero).0, StoreErrorKind::InvalidInput);
}

#[tokio::test]
async fn tokens_are_exact_up_to_the_last() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    let last = Token::MAX.get();
    for n in [
        1,
        9,
        10,
        1_762_000_000_000_001,
        1_762_000_000_000_002,
        last - 1,
        last,
    ] {
        gate.set(&user, token(n), "k", n).await.unwrap();
        gate.set(&user, token(n), "k", n).await.unwrap();
        assert_eq!(
            text(&server, &["GET", &gate.mark_name(&user)]).unwrap(),
            n.to_string()
        );
        if n > 1 {
            assert_eq!(
                stale(gate.set(&user, token(n - 1), "k", 0).await),
                (n - 1, n)
            );
        }
    }
}

#[tokio::test]
async fn what_is_not_a_mark_is_left_alone() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    let mark = gate.mark_name(&user);
    for foreign in [
        "",
        "x",
        "0",
        "-1",
        "1.5",
        "1e3",
        " 5",
        "05",
        "9007199254740992",
        "9007199254740993",
        "99999999999999999999",
        "0x10",
        "5\n",
    ] {
        server.command(&["SET", &mark, foreign]).unwrap();
        let (kind, words) = kind(gate.set(&user, token(9), "k", "v").await);
        assert_eq!(kind, StoreErrorKind::Refusing, "{foreign:?}");
        assert!(
            words.contains("left as it is") || words.contains("left"),
            "{words}"
        );
        assert_eq!(text(&server, &["GET", &mark]).unwrap(), foreign);
    }
    server.command(&["DEL", &mark]).unwrap();
    server.command(&["RPUSH", &mark, "a"]).unwrap();
    let (kind, _) = kind(gate.set(&user, token(9), "k", "v").await);
    assert_eq!(kind, StoreErrorKind::Refusing);
    assert_eq!(text(&server, &["LLEN", &mark]).unwrap(), "1");
    assert_eq!(text(&server, &["GET", "k"]), None);
}

#[tokio::test]
async fn a_script_runs_as_if_alone() {
    let server = plain();
    server
        .command(&["HSET", "h", "f", "1.5", "g", "x"])
        .unwrap();
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}/?protocol={protocol}", server.url());
        runs_as_if_alone(&url).await;
    }
}

async fn runs_as_if_alone(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let gate = RedisGate::new(connection.clone());
    let user = Key::new("user:7").unwrap();
    let run = async |code: &str| {
        let script = FencedScript::new(code);
        let (keys, args) = (["k1", "k2"], ("a", "b", ""));
        let fenced = gate.script::<Value>(&user, token(3), &script, &keys, args);
        let fenced = fenced.await.unwrap_or_else(|e| panic!("{code}: {e}"));
        let alone: Value = redis::Script::new(code)
            .key(&keys)
            .arg(args)
            .invoke_async(&mut connection.clone())
            .await
            .unwrap();
        assert_eq!(fenced, alone, "{code}");
    };
    let ours = FencedScript::new("return lease_admit");
    let hidden = gate
        .script::<Value>(&user, token(3), &ours, NONE, NONE)
        .await;
    assert!(
        matches!(hidden, Err(ScriptError::Failed { .. })),
        "{hidden:?}"
    );
    for code in [
        "return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]}",
        "return {KEYS[3] == nil, ARGV[4] == nil}",
        "return KEYS",
        "return {1, {2, {3, 'x', {}}}, false, 4}",
        "return {1, nil, 3}",
        "return nil",
        "return false",
        "return true",
        "return 3.99",
        "return 9007199254740991",
        "return {ok = 'FINE'}",
        "return redis.status_reply('FINE')",
        "return redis.call('SET', KEYS[1], ARGV[1])",
        "return redis.call('GET', 'none')",
        "if ARGV[1] == 'a' then return 'early' end\nreturn 'late'",
        "do return 1 end",
        "local function twice(x) return x .. x end\nlocal y = twice(ARGV[2])\nreturn y",
        "local function nested() return KEYS[2] end return nested()",
        "return 1 -- a comment without an end of line",
        "return 1 --[[ a long\none ]]",
        "-- only a comment",
        "",
        "\n\n",
        "return 1;",
        "return [[a\n]]",
        "redis.setresp(3) return redis.call('HGETALL', 'h')",
        "redis.setresp(3) return {1, redis.call('HGETALL', 'h')}",
        "redis.setresp(3) return {map = {a = 1}}",
        "return 1, 2",
        "local t = {} for i = 1, 3 do t[#t + 1] = i * 10 end return t",
        "#!lua flags=allow-oom\nreturn KEYS[1]",
        "return {double = 3.5}",
        "return {pcall(redis.call, 'GET', KEYS[1])} and 'caught'",
        "return cjson.encode({ARGV[1], 5})",
    ] {
        run(code).await;
    }
}

#[tokio::test]
async fn a_stale_script_is_not_run() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    let push = FencedScript::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let script = |n| gate.script::<u64>(&user, token(n), &push, "list", n);
    assert_eq!(script(4).await.unwrap(), 1);
    assert_eq!(script(4).await.unwrap(), 2);
    match script(3).await {
        Err(ScriptError::Stale(stale)) => {
            assert_eq!((stale.presented, stale.admitted), (token(3), token(4)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(text(&server, &["LLEN", "list"]).unwrap(), "2");
    // A dropped cache of scripts changes nothing, and doubles nothing.
    server.script_flush().unwrap();
    assert_eq!(script(4).await.unwrap(), 3);
    server.script_flush().unwrap();
    assert!(matches!(script(3).await, Err(ScriptError::Stale(_))));
    assert_eq!(script(4).await.unwrap(), 4);
}

#[tokio::test]
async fn a_failing_script_is_told_from_a_refusal() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    server.command(&["SET", "text", "x"]).unwrap();
    let mut n = 10;
    for (code, words) in [
        (
            "redis.call('SET', 'k', ARGV[1])\nreturn redis.call('LPUSH', 'text', 1)",
            "WRONGTYPE",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nlocal x = nil\nreturn x.y",
            ":3:",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nerror('my words')",
            "my words",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nerror({})",
            "without words",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nerror({err = 'MINE a table'})",
            "MINE a table",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nreturn redis.error_reply('MINE returned')",
            "MINE returned",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nreturn {1, {err = 'MINE inside'}}",
            "MINE inside",
        ),
        // The driver would take one for the server's, and run the script again.
        (
            "redis.call('APPEND', 'twice', 'x')\nredis.call('SET', 'k', ARGV[1])\n\
          return {1, {2, {err = 'NOSCRIPT mine'}}}",
            "NOSCRIPT mine",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nreturn redis.error_reply('STALE 3')",
            "STALE 3",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nlocal t = {} t[1] = t return t",
            "nested too deeply",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\nlocal function f() return 1 + f() end return f()",
            "stack overflow",
        ),
        (
            "redis.call('SET', 'k', ARGV[1])\n\
          return setmetatable({}, {__index = function() error('trap') end})",
            "",
        ),
    ] {
        n += 1;
        let script = FencedScript::new(code);
        match gate
            .script::<Value>(&user, token(n), &script, NONE, n)
            .await
        {
            Err(ScriptError::Failed { message }) => {
                assert!(message.contains(words), "{code}: {message}");
            }
            Ok(value) if words.is_empty() => assert_eq!(value, Value::Array(vec![])),
            other => panic!("{code}: {other:?}"),
        }
        // What it wrote stays, and so does the token.
        assert_eq!(text(&server, &["GET", "k"]).unwrap(), n.to_string());
        assert_eq!(
            text(&server, &["GET", &gate.mark_name(&user)]).unwrap(),
            n.to_string()
        );
    }
    assert_eq!(text(&server, &["GET", "twice"]).unwrap(), "x");

    let text = FencedScript::new("return 'secret'");
    match gate.script::<u64>(&user, token(n), &text, NONE, NONE).await {
        Err(ScriptError::Answer { message }) => {
            assert_eq!(message, "a text of 6 bytes is no u64");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_script_that_does_not_compile_admits_nothing() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    for code in [
        "return return",
        "return 1 end",
        "if true then",
        "--[[ open",
        "return 'open",
        "x =",
    ] {
        let script = FencedScript::new(code);
        match gate
            .script::<Value>(&user, token(9), &script, NONE, NONE)
            .await
        {
            Err(ScriptError::Store(error)) => {
                assert_eq!(error.kind(), StoreErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains("does not compile"), "{error}");
            }
            other => panic!("{code}: {other:?}"),
        }
    }
    assert_eq!(text(&server, &["GET", &gate.mark_name(&user)]), None);
}

#[tokio::test]
async fn writes_that_cannot_be_made_say_why() {
    let server = RedisServer::builder()
        .user("half on >half ~* +eval +evalsha +get +hset")
        .start()
        .unwrap();
    let (gate, user) = gate(&server).await;
    server.command(&["SET", "text", "x"]).unwrap();
    let (refused, words) = kind(gate.hset(&user, token(1), "text", ("f", 1)).await);
    assert_eq!(refused, StoreErrorKind::Refusing);
    assert!(words.contains("another type"), "{words}");
    let none: [(&str, &str); 0] = [];
    let (refused, _) = kind(gate.hset(&user, token(1), "h", &none).await);
    assert_eq!(refused, StoreErrorKind::InvalidInput);
    let (refused, _) = kind(gate.hset(&user, token(1), "h", &["odd"]).await);
    assert_eq!(refused, StoreErrorKind::InvalidInput);
    let (refused, _) = kind(gate.set(&user, token(1), &["a", "b"], "v").await);
    assert_eq!(refused, StoreErrorKind::InvalidInput);
    let many: Vec<(u32, u32)> = (0..5001).map(|n| (n, n)).collect();
    assert_eq!(gate.hset(&user, token(1), "h", &many).await.unwrap(), 5001);
    assert_eq!(text(&server, &["HGET", "h", "5000"]).unwrap(), "5000");

    server.config_set("maxmemory", "1").unwrap();
    let (refused, words) = kind(gate.set(&user, token(2), "k", "v").await);
    assert_eq!(refused, StoreErrorKind::Refusing);
    assert!(words.contains("maxmemory"), "{words}");
    assert_eq!(
        text(&server, &["GET", &gate.mark_name(&user)]).unwrap(),
        "1"
    );
    server.config_set("maxmemory", "0").unwrap();

    let half = connect(&server.url().user("half", "half")).await;
    let (refused, words) = kind(RedisGate::new(half).set(&user, token(2), "k", "v").await);
    assert_eq!(refused, StoreErrorKind::Refusing);
    assert!(words.contains("rights"), "{words}");
    assert_eq!(text(&server, &["GET", "k"]), None);
}

#[tokio::test]
async fn scripts_of_ones_own_fence_themselves() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    let script = redis::Script::new(&format!(
        "{ADMIT_LUA}
         local refused = lease_admit(KEYS[1], ARGV[1], ARGV[2])
         if refused then return refused end
         return redis.call('INCRBY', KEYS[2], 5)"
    ));
    let mut connection = connect(&server.url()).await;
    let mut add = async |token: &str| -> Result<u64, redis::RedisError> {
        let mut call = script.prepare_invoke();
        call.key(gate.mark_name(&user)).key("n").arg(token);
        call.invoke_async(&mut connection).await
    };
    assert_eq!(add("7").await.unwrap(), 5);
    assert_eq!(add("7").await.unwrap(), 10);
    let refused = stale_token(&add("6").await.unwrap_err(), &user, token(6)).unwrap();
    assert_eq!((refused.presented, refused.admitted), (token(6), token(7)));
    for odd in ["", "0", "x", "1e9", "9007199254740992"] {
        let error = add(odd).await.unwrap_err();
        assert_eq!(stale_token(&error, &user, token(1)), None);
        assert!(error.to_string().contains("not a fencing token"), "{error}");
    }
    assert_eq!(text(&server, &["GET", "n"]).unwrap(), "10");
}

#[tokio::test]
async fn a_lost_connection_is_an_unknown_outcome() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    gate.admit(&user, token(1)).await.unwrap();
    drop(server);
    let (kind, _) = kind(gate.set(&user, token(1), "k", "v").await);
    assert_eq!(kind, StoreErrorKind::UnknownOutcome);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_shows_tokens_never_falling() {
    let server = plain();
    let (gate, user) = gate(&server).await;
    let push = FencedScript::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let base = 1_762_000_000_000_000;
    let tasks: Vec<_> = (0..50_u64)
        .map(|writer| {
            let (gate, user, push) = (gate.clone(), user.clone(), push.clone());
            tokio::spawn(async move {
                let mut written = 0_u64;
                for round in 0..20 {
                    // Interleaved: no two writers share a token.
                    let n = base + round * 50 + (writer * 7) % 50;
                    match gate
                        .script::<u64>(&user, token(n), &push, "history", n)
                        .await
                    {
                        Ok(_) => written += 1,
                        Err(ScriptError::Stale(stale)) => assert!(stale.admitted > token(n)),
                        Err(error) => panic!("{error}"),
                    }
                }
                written
            })
        })
        .collect();
    let mut written = 0;
    for task in tasks {
        written += task.await.unwrap();
    }
    let history = server.command(&["LRANGE", "history", "0", "-1"]).unwrap();
    let history = history.list().unwrap().iter();
    let history: Vec<u64> = history
        .map(|n| n.text().unwrap().parse().unwrap())
        .collect();
    assert_eq!(u64::try_from(history.len()).unwrap(), written);
    assert!(history.is_sorted(), "{history:?}");
    assert_eq!(history.last(), Some(&(base + 999)));
}
