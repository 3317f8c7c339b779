// Package jobkeeper is the supervisor's side of jobs: commands that run without a client. It runs them in the guest by way of
// the agent, keeps their output in bounded files (joblog), and writes down how they ended, on a disk that has become full
// too. It serves the calls about them (agentclient.JobServer).
//
// What it does not protect against: a guest that lies about how its processes ended. What it reports is stored,
// bounded, as its own report.
package jobkeeper
