//! Options and what they show.

use super::*;

fn options() -> PostgresOptions {
    PostgresOptions::from_url("postgres://whoever:secret@db.example:6000/app").unwrap()
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", options());
    assert!(
        shown.contains("db.example") && shown.contains("6000"),
        "{shown}"
    );
    assert!(
        !shown.contains("secret") && !shown.contains("whoever"),
        "{shown}"
    );
    let store = options().open_lazily().unwrap();
    assert_eq!(format!("{store:?}"), "PostgresStore { .. }");
}

#[test]
fn options_out_of_range_are_named() {
    let refused = |options: PostgresOptions| options.checked().unwrap_err().to_string();
    assert!(refused(options().connections(0)).contains("1 to 64"));
    assert!(refused(options().response_timeout(Duration::ZERO)).contains("response_timeout"));
    for grace in [0, 499, 60_001] {
        let grace = Duration::from_millis(grace);
        assert!(refused(options().crash_detection(grace)).contains("crash_detection"));
    }
    let short = options().tombstone_retention(Duration::from_secs(1));
    assert!(refused(short).contains("tombstone_retention"));
}

#[test]
fn the_script_names_the_schema_and_the_tables_of_the_user() {
    let options = options().schema("our \"own\"").unwrap();
    let script = options.table_prefix("x_").unwrap().schema_sql();
    for part in [
        "WHERE nspname = E'our \"own\"'",
        "CREATE SCHEMA \"our \"\"own\"\"\"",
        "\"our \"\"own\"\"\".\"x_keys\"",
    ] {
        assert!(script.contains(part), "{script}");
    }
    assert!(!script.contains('{'), "{script}");
}
