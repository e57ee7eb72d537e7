// Package buckettest holds implementations of bucket.Bucket to their promises, and makes the world they have to keep them in.
//
//   - Run is the conformance suite: every invariant of package bucket, and races between many writers.
//   - Start and Server start a real S3 server on loopback (versitygw, installed once by name and version into the user's cache
//     folder), over a folder. Nothing of it outlives the process.
//   - Proxy is an HTTP proxy before a server that injects faults: lost requests and lost answers, 5xx, slow, truncated and
//     damaged bodies, stale lists, skewed clocks, latency; by verb, by the nth request, or by chance with a seed.
//
// Start and the proxy need no test, so that demos and benchmarks can use them as well.
package buckettest
