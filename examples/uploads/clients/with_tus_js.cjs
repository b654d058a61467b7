// Uploads one file with tus-js-client, run by node, and prints where it is: `node with_tus_js.cjs URL FILE`.
// NODE_PATH tells where tus-js-client is installed.
const fs = require("node:fs");
const path = require("node:path");
const tus = require("tus-js-client");

const [endpoint, file] = process.argv.slice(2);
const upload = new tus.Upload(fs.createReadStream(file), {
  endpoint,
  retryDelays: Array(100).fill(200),
  metadata: { filename: path.basename(file), filetype: "application/octet-stream" },
  onSuccess: () => console.log(upload.url),
  onError: (error) => {
    console.error(String(error));
    process.exitCode = 1;
  },
});
upload.start();
