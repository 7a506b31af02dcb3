// node-redlock on the servers that are named: prints the median times of acquire,
// extend and release in microseconds, as JSON. See ../redis/quorum.rs.
const Client = require("ioredis");
const { default: Redlock } = require("redlock");

async function main() {
  const [count, ...urls] = process.argv.slice(2);
  const clients = urls.map((url) => new Client(url));
  const redlock = new Redlock(clients, { retryCount: 0 });
  const ttl = 30000;
  const times = [[], [], []];
  const now = () => Number(process.hrtime.bigint()) / 1e3;
  for (let i = 0; i < Number(count) + 50; i++) {
    const begin = now();
    let lock = await redlock.acquire(["node"], ttl);
    const acquired = now();
    lock = await lock.extend(ttl);
    const extended = now();
    await lock.release();
    const released = now();
    // The first ones warm up.
    if (i < 50) continue;
    times[0].push(acquired - begin);
    times[1].push(extended - acquired);
    times[2].push(released - extended);
  }
  const medians = times.map((all) => all.sort((a, b) => a - b)[all.length >> 1]);
  console.log(JSON.stringify(medians));
  for (const client of clients) client.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
