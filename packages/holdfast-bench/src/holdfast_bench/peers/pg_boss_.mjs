// pg-boss. Defaults: `work` without options, one job every two seconds; best: batches of 5,000, asked for every half
// second, which is the shortest it allows.
import { PgBoss } from "pg-boss";

import * as kit from "./kit.mjs";

async function started() {
  const boss = new PgBoss(kit.URL);
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

async function setup() {
  const boss = await started();
  await boss.createQueue("noop");
  await boss.stop();
}

async function connect() {
  const boss = await started();
  const given = (number) => ({ number, payload: kit.PAYLOAD });
  return {
    one: (number) => boss.send("noop", given(number)),
    many: (numbers) => boss.insert("noop", numbers.map((number) => ({ data: given(number) }))),
    close: () => boss.stop({ graceful: false }),
  };
}

async function work() {
  const boss = await started();
  const options = kit.BEST ? { batchSize: 5000, pollingIntervalSeconds: 0.5 } : {};
  await boss.work("noop", options, (jobs) =>
    Promise.all(jobs.map((job) => kit.handle(job.data.number))),
  );
  process.once("SIGTERM", async () => {
    await boss.stop();
    process.exit(0);
  });
}

await kit.run({ setup, connect, work });
