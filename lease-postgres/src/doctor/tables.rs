//! The store's tables and functions: there, of a version that this program knows, and kept.

use lease_core::{Finding, StoreError};

use super::ask::{Answer, Asker, Line, Refusal};
use super::server::Look;
use super::{Facts, critical, healthy, note, unchecked};
use crate::layout::{self, Layout};
use crate::names::{literal, quoted};
use crate::schema::shape;

/// More rows than most programs ever ask for.
const MANY: i64 = 5_000_000;

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) all: Answer<Vec<Table>>,
    pub(super) functions: Answer<Vec<Function>>,
    pub(super) schema: Answer<SchemaRights>,
    versions: Answer<(i64, i64)>,
    /// What is there and not as the store made it.
    strange: Answer<Vec<String>>,
}

#[derive(Debug)]
pub(super) struct Table {
    /// Without the prefix.
    pub(super) suffix: &'static str,
    /// Of SELECT, INSERT, UPDATE and DELETE.
    pub(super) needed: [bool; 4],
    /// May be emptied by a crash.
    pub(super) may_be_unlogged: bool,
    pub(super) name: String,
    /// `None` while it is missing.
    pub(super) is: Option<Is>,
}

#[derive(Debug)]
pub(super) struct Is {
    pub(super) unlogged: bool,
    pub(super) row_security: bool,
    pub(super) rows: i64,
    pub(super) dead: i64,
    /// Seconds since it was last vacuumed.
    pub(super) vacuumed: Option<i64>,
    pub(super) autovacuum_off: bool,
    /// Of SELECT, INSERT, UPDATE and DELETE.
    pub(super) rights: [bool; 4],
}

#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    takes: String,
    /// Both.
    shown: String,
    pub(super) there: bool,
    pub(super) execute: bool,
}

#[derive(Debug)]
pub(super) struct SchemaRights {
    pub(super) there: bool,
    pub(super) usage: bool,
    pub(super) create: bool,
}

impl Tables {
    pub(super) async fn ask(asker: &mut Asker<'_>, facts: &Facts) -> Result<Self, StoreError> {
        let names = &facts.names;
        let schema = literal(names.schema());
        let rights = asker
            .one(format!(
                "SELECT s.oid IS NOT NULL AS there, \
                 coalesce(has_schema_privilege(s.oid, 'USAGE'), false) AS usage, \
                 coalesce(has_schema_privilege(s.oid, 'CREATE'), \
                    has_database_privilege(current_database(), 'CREATE')) AS create \
                 FROM (SELECT 1) AS one LEFT JOIN pg_namespace AS s ON s.nspname = {schema}"
            ))
            .await?;
        let rights = rights.and_then(|line| {
            Ok(SchemaRights {
                there: line.flag("there")?,
                usage: line.flag("usage")?,
                create: line.flag("create")?,
            })
        });
        let listed: Vec<String> = facts
            .layout
            .tables
            .iter()
            .map(|table| literal(&names.bare(table.suffix)))
            .collect();
        let lines = asker
            .all(format!(
                "SELECT w.name, c.oid IS NOT NULL AS there, \
                 coalesce(c.relpersistence = 'u', false) AS unlogged, \
                 coalesce(c.relrowsecurity, false) AS row_security, \
                 coalesce(greatest(s.n_live_tup, c.reltuples::bigint), 0) AS live, \
                 coalesce(s.n_dead_tup, 0) AS dead, \
                 date_part('epoch', clock_timestamp() \
                    - greatest(s.last_vacuum, s.last_autovacuum))::bigint AS vacuumed, \
                 coalesce(array_to_string(c.reloptions, ' '), '') AS options, \
                 coalesce(has_table_privilege(c.oid, 'SELECT'), false) AS may_select, \
                 coalesce(has_table_privilege(c.oid, 'INSERT'), false) AS may_insert, \
                 coalesce(has_table_privilege(c.oid, 'UPDATE'), false) AS may_update, \
                 coalesce(has_table_privilege(c.oid, 'DELETE'), false) AS may_delete \
                 FROM unnest(ARRAY[{}]) WITH ORDINALITY AS w (name, n) \
                 LEFT JOIN (pg_class AS c JOIN pg_namespace AS p \
                    ON p.oid = c.relnamespace AND p.nspname = {schema}) ON c.relname = w.name \
                 LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid \
                 ORDER BY w.n",
                listed.join(", ")
            ))
            .await?;
        let all = lines.and_then(|lines| {
            let tables = facts.layout.tables.iter().zip(&lines);
            let read = |(table, line)| Table::read(table, line);
            tables.map(read).collect()
        });
        let listed = facts.layout.functions.iter().map(|one| {
            let (name, takes) = (literal(&names.bare(one.suffix)), literal(one.takes));
            format!("({name}, {takes})")
        });
        let listed: Vec<_> = listed.collect();
        let lines = asker
            .all(format!(
                "SELECT f.name, f.takes, p.oid IS NOT NULL AS there, \
                 coalesce(has_function_privilege(p.oid, 'EXECUTE'), false) AS may_execute \
                 FROM (VALUES {}) AS f (name, takes) \
                 LEFT JOIN (pg_proc AS p JOIN pg_namespace AS s \
                    ON s.oid = p.pronamespace AND s.nspname = {schema}) \
                    ON p.proname = f.name AND oidvectortypes(p.proargtypes) = f.takes",
                listed.join(", ")
            ))
            .await?;
        let functions = lines.and_then(|lines| lines.iter().map(Function::read).collect());
        let versions = asker
            .one(format!(
                "SELECT version::bigint AS version, compatible::bigint AS compatible FROM {}",
                names.full(facts.layout.version_table())
            ))
            .await?;
        let versions =
            versions.and_then(|line| Ok((line.number("version")?, line.number("compatible")?)));
        let lines = asker.all(shape::query(facts.layout, names)).await?;
        let strange = lines.and_then(|lines| {
            let told = lines.iter().filter_map(|line| match line.words("what") {
                Ok(None) => None,
                Ok(Some(what)) => Some(line.text("name").map(|name| format!("{name}: {what}"))),
                Err(refusal) => Some(Err(refusal)),
            });
            told.collect()
        });
        Ok(Self {
            all,
            functions,
            schema: rights,
            versions,
            strange,
        })
    }

    /// One of them, if it is there.
    pub(super) fn table(&self, suffix: &str) -> Option<&Is> {
        let all = self.all.as_ref().ok()?;
        all.iter().find(|t| t.suffix == suffix)?.is.as_ref()
    }

    pub(super) fn missing(&self) -> Vec<&str> {
        let tables = self.all.iter().flatten();
        let tables = tables.filter(|table| table.is.is_none());
        let functions = self.functions.iter().flatten();
        let functions = functions.filter(|function| !function.there);
        tables
            .map(|table| table.name.as_str())
            .chain(functions.map(|function| function.shown.as_str()))
            .collect()
    }
}

impl Function {
    /// As SQL.
    pub(super) fn full(&self, facts: &Facts) -> String {
        let schema = quoted(facts.names.schema());
        format!("{schema}.{}({})", quoted(&self.name), self.takes)
    }

    fn read(line: &Line) -> Answer<Self> {
        let (name, takes) = (line.text("name")?, line.text("takes")?);
        Ok(Self {
            shown: format!("{name}({takes})"),
            name,
            takes,
            there: line.flag("there")?,
            execute: line.flag("may_execute")?,
        })
    }
}

impl Table {
    fn read(of: &layout::Table, line: &Line) -> Answer<Self> {
        let there = line.flag("there")?;
        let is = Is {
            unlogged: line.flag("unlogged")?,
            row_security: line.flag("row_security")?,
            rows: line.number("live")?,
            dead: line.number("dead")?,
            vacuumed: line.maybe("vacuumed"),
            autovacuum_off: line.text("options")?.contains("autovacuum_enabled=false")
                || line.text("options")?.contains("autovacuum_enabled=off"),
            rights: [
                line.flag("may_select")?,
                line.flag("may_insert")?,
                line.flag("may_update")?,
                line.flag("may_delete")?,
            ],
        };
        Ok(Self {
            suffix: of.suffix,
            needed: of.rights,
            may_be_unlogged: of.unlogged,
            name: line.text("name")?,
            is: there.then_some(is),
        })
    }
}

pub(super) fn judge(tables: &Tables, look: &Look, facts: &Facts) -> Vec<Finding> {
    let why = format!("{} are rows of the store's tables", facts.layout.of);
    let all = match &tables.all {
        Ok(all) => all,
        Err(refusal) => return vec![unchecked("tables", why, refusal)],
    };
    let missing = tables.missing();
    if !missing.is_empty() {
        let absent = absent(&missing, tables, look, facts);
        return [absent].into_iter().chain(strange(tables)).collect();
    }
    let mut findings = vec![version(tables, facts.layout)];
    findings.extend(strange(tables));
    let lost: Vec<_> = all
        .iter()
        .filter(|table| !table.may_be_unlogged)
        .filter(|table| table.is.as_ref().is_some_and(|is| is.unlogged))
        .map(|table| facts.names.full(table.suffix))
        .collect();
    let why = format!(
        "an unlogged table is emptied by a crash, and is empty on a standby that takes over: {} is \
         lost",
        facts.layout.all
    );
    findings.push(match lost.as_slice() {
        [] => healthy("unlogged: no table is", why),
        lost => {
            let alter: Vec<_> = lost
                .iter()
                .map(|name| format!("ALTER TABLE {name} SET LOGGED;"))
                .collect();
            critical(format!("unlogged: {}", lost.join(", ")), why).advice(alter.join(" "))
        }
    });
    let secured: Vec<_> = all
        .iter()
        .filter(|table| table.is.as_ref().is_some_and(|is| is.row_security))
        .map(|table| facts.names.full(table.suffix))
        .collect();
    if !secured.is_empty() {
        let what = format!("row security: on for {}", secured.join(", "));
        let why = "a policy may hide a grant from this role, which then grants the same once more";
        findings.push(
            critical(what, why).advice("ALTER TABLE … DISABLE ROW LEVEL SECURITY on the tables"),
        );
    }
    findings.extend(rows(tables));
    findings
}

fn absent(missing: &[&str], tables: &Tables, look: &Look, facts: &Facts) -> Finding {
    let schema = facts.names.schema();
    let what = format!(
        "tables: {} missing in the schema {schema:?}",
        missing.join(", ")
    );
    let by_hand = format!(
        "run what {} prints as somebody who may",
        facts.layout.printed_by
    );
    let create = tables.schema.as_ref().is_ok_and(|s| s.create);
    if look.standby == Ok(true) {
        critical(
            what,
            "a standby has what its primary has, and takes none of its own",
        )
        .advice("name the primary in the URL")
    } else if !facts.migrate {
        critical(what, "the store was told not to make them (migrate=false)").advice(by_hand)
    } else if create {
        note(what, "the store makes them when it is first used")
    } else {
        critical(
            what,
            "the role may not make them: it has no right to CREATE there",
        )
        .advice(by_hand)
    }
}

fn strange(tables: &Tables) -> Option<Finding> {
    let what = match &tables.strange {
        Ok(strange) if strange.is_empty() => return None,
        Ok(strange) => strange.join("; "),
        Err(refusal) => {
            let why = "what only has the names of the store's tables does not keep what they keep";
            return Some(unchecked("the tables' columns and keys", why, refusal));
        }
    };
    let why = "the store refuses to work with what it did not make like this: a key could be there \
               twice, or not be understood";
    let advice = "put it right, or choose another schema or table prefix in the URL";
    Some(critical(format!("not the store's own: {what}"), why).advice(advice))
}

fn version(tables: &Tables, layout: &Layout) -> Finding {
    let why = "a program and the tables must know each other";
    match &tables.versions {
        Ok((version, compatible)) => {
            let what = format!("tables: there, of version {version}");
            match *compatible <= i64::from(layout.version) {
                true => healthy(what, why),
                false => critical(
                    format!("{what}, for programs from version {compatible} on"),
                    why,
                )
                .advice("upgrade this program"),
            }
        }
        Err(refusal @ Refusal::Odd) => critical(
            format!("tables: there, without their version ({refusal})"),
            why,
        )
        .advice(format!("run what {} prints", layout.printed_by)),
        Err(refusal) => unchecked("tables", why, refusal)
            .advice("give the role the rights that it lacks, and look again"),
    }
}

fn rows(tables: &Tables) -> Option<Finding> {
    let rows = tables.table("keys")?.rows;
    let what = format!("keys: about {rows}");
    let why = "a row stays for each key that was ever asked for, so that its tokens never start \
               again";
    Some(match rows {
        MANY.. => note(what, why).advice(
            "name keys by what they guard and not by each piece of work; a table that is full of \
             keys that nobody uses any more still works",
        ),
        _ => healthy(what, why),
    })
}
