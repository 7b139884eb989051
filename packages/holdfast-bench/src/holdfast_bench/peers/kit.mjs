// What adapters of Node queues share: the same actions and variables as kit.py has.
import fs from "node:fs";

const env = process.env;
export const URL = env.BENCH_URL;
export const BEST = env.BENCH_MODE === "best";
export const PAYLOAD = JSON.parse(env.BENCH_PAYLOAD);
export const SLOTS = 50;
const IO_MS = Number(env.BENCH_IO ?? 0) * 1000;
const AT_ONCE = 1000;
const PER_SECOND = 50;

const stamps = fs.openSync(env.BENCH_STAMPS, "a", 0o600);
const record = Buffer.alloc(16);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => process.hrtime.bigint();

// Note that the handler of this job was called, then wait where the figure is about I/O.
export async function handle(number) {
  record.writeBigInt64LE(BigInt(number), 0);
  record.writeBigInt64LE(now(), 8);
  fs.writeSync(stamps, record);
  if (IO_MS) await pause(IO_MS);
}

async function started({ one, many }, action, count) {
  const begun = now();
  const called = [];
  const seconds = () => Number(now() - begun) / 1e9;
  if (action === "many") {
    for (let first = 0; first < count; first += AT_ONCE) {
      const length = Math.min(AT_ONCE, count - first);
      await many(Array.from({ length }, (_, index) => first + index));
    }
  } else {
    for (let number = 0; number < count; number++) {
      if (action === "pace") {
        await pause(Math.max(0, (number / PER_SECOND - seconds()) * 1000));
        called.push(Number(now()));
      }
      await one(number);
    }
  }
  return { seconds: seconds(), called };
}

export async function run({ setup, connect, work }) {
  const [action, count] = process.argv.slice(2);
  if (action === "setup") await setup();
  else if (action === "work") return work();
  else {
    const connected = await connect();
    console.log(JSON.stringify(await started(connected, action, Number(count))));
    await connected.close();
  }
  process.exit(0);
}
