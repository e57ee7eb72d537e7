// Package httpapi is the host API over HTTP: a Server that serves any host.API, and a Client that is one.
//
// Both translate and decide nothing. Bodies are JSON, decoded strictly: an unknown field, a second value, or more than
// 1 MiB is refused. Sizes are bytes or say their unit, times are RFC 3339.
//
//	GET    /v1/host/health                                   {"status":"ok"}; asks nothing of the host
//	GET    /v1/host/info                                     version, home, capabilities
//	GET    /metrics                                          in the text format of Prometheus: VMs, the store, replication
//	POST   /v1/host/shutdown                                 the daemon ends, as if by SIGTERM
//	GET    /v1/host/flashvms                                 list
//	POST   /v1/host/flashvms                                 create {"id","bundle","vcpus","mem_mib","checkpoints","ports","disk_mib"}
//	                                                         fork   {"from":{"flashvm","checkpoint"},"count","ids","ports"}, answers a list
//	GET    /v1/host/flashvms/{vm_id}                         one
//	PATCH  /v1/host/flashvms/{vm_id}                         rewind {"checkpoint":3}, answers {"flashvm","saved"}
//	                                                         stop   {"state":"stopped","discard":false} · start {"state":"running"}
//	                                                         policy {"restart":"always"} or "no"
//	DELETE /v1/host/flashvms/{vm_id}?force=true
//	GET    /v1/host/flashvms/{vm_id}/checkpoints             history
//	POST   /v1/host/flashvms/{vm_id}/checkpoints             take one now {"label","pin"}
//	PATCH  /v1/host/flashvms/{vm_id}/checkpoints/{n}         {"pinned":true}
//	DELETE /v1/host/flashvms/{vm_id}/checkpoints/{n}         its children hang on its nearest ancestor that is left
//	GET    /v1/host/flashvms/{vm_id}/diff?from=1&to=3        to may be absent: the newest
//	GET    /v1/host/flashvms/{vm_id}/ledger
//	GET    /v1/host/flashvms/{vm_id}/logs?follow=true        the console, text/plain
//	POST   /v1/host/flashvms/{vm_id}/exec                    run {"argv","env","cwd","user","tty","rows","cols","stdin","timeout_ms","checkpoint"}
//	GET    /v1/host/flashvms/{vm_id}/execs                   what the guest's agent knows
//	POST   /v1/host/flashvms/{vm_id}/attach                  go on with the newest exec's output
//	POST   /v1/host/flashvms/{vm_id}/execs/{exec_id}/attach  … with that one's
//	GET    /v1/host/flashvms/{vm_id}/files?path=/etc         application/x-tar out
//	PUT    /v1/host/flashvms/{vm_id}/files?path=/tmp         application/x-tar in, unpacked below path
//	GET    /v1/host/bundles
//	POST   /v1/host/bundles                                  {"build":{"kind","name","disk_mib"}} or {"import":{"path","name","disk_mib"}}
//	DELETE /v1/host/bundles/{name}
//	POST   /v1/host/gc                                       {"apply","flashvms","retention":{…},"save","background","every_minutes"}
//	POST   /v1/host/check                                    {"read":0.05,"repair":false}: findings, and the checkpoints they touch
//	GET    /v1/host/debug/{what}?name=…                      pack, node, snapshot, why: the store's formats; process: the daemon itself; read only
//
// # Errors
//
// Every failure is {"error":{"code","message","remedy"}} with the status of the table in errors.go. What fails after a
// stream has begun ends an x-ndjson stream with that object as its last line, and any other stream with it in the
// trailer Flash-Error.
//
// # Request ids
//
// Create, fork, rewind, checkpoint and exec take a request id, in the body's "request_id" or in the header
// Idempotency-Key: the same id again gives the same answer.
//
// # Streams for plain clients
//
// exec and attach answer application/x-ndjson, one object a line: {"stream":"stdout","data":BASE64} or "stderr", and
// last {"exit_code":0,"signal":"","timed_out":false,"exec_id":"…","checkpoint":{…}}. Bundle work answers the same way:
// {"progress":{"step","done","total","unit"}} and last {"bundle":{…}}. The status line comes with the first line, so
// that what fails earlier has its proper status. A client that goes away cancels: its exec's whole cgroup is killed.
//
// # Streams for interactive clients
//
// With Connection: Upgrade and Upgrade: flash-exec/1 the server answers 101 and both sides then speak frames; see
// frame.go. The body's "attach_stdin" then says whether the command has a stdin.
//
// # Trust
//
// The unix socket has mode 0600 from before it can be found; who may open it may do everything. TCP is served only
// with a bearer token, compared in constant time, to requests that have it; TLS is left to what stands before it.
//
// Lock order: none of the locks here is held while another is taken.
package httpapi
