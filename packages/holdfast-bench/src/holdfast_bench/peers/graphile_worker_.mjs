// graphile-worker. Defaults: `run` without options, one job at once; best: fifty at once, a local queue of 500,
// completions gathered for 50 ms, as its page on performance recommends.
import { makeWorkerUtils, run as runWorker } from "graphile-worker";

import * as kit from "./kit.mjs";

const best = {
  worker: {
    concurrentJobs: kit.SLOTS,
    localQueue: { size: 500 },
    completeJobBatchDelay: 50,
    failJobBatchDelay: 50,
  },
};

async function setup() {
  const utils = await makeWorkerUtils({ connectionString: kit.URL });
  await utils.migrate();
  await utils.release();
}

async function connect() {
  const utils = await makeWorkerUtils({ connectionString: kit.URL });
  const given = (number) => ({ number, payload: kit.PAYLOAD });
  return {
    one: (number) => utils.addJob("noop", given(number)),
    many: (numbers) =>
      utils.addJobs(numbers.map((number) => ({ identifier: "noop", payload: given(number) }))),
    close: () => utils.release(),
  };
}

function work() {
  return runWorker({
    connectionString: kit.URL,
    taskList: { noop: (payload) => kit.handle(payload.number) },
    ...(kit.BEST ? { preset: best } : {}),
  });
}

await kit.run({ setup, connect, work });
