export type {
  Activity,
  FinishedActivity,
  FixInput,
  GateContext,
  LaunchDescription,
  LaunchEvents,
  LaunchObserver,
  LlmClient,
  LlmContext,
  LlmFactory,
  LlmMessage,
  LlmReply,
  LlmRequest,
  ReadableArtifacts,
  WorkerContext,
  WritableArtifacts,
  WriteArtifactOptions,
} from './launch/context.ts'
export { CONTRACTS, type ContractName } from './launch/contracts.ts'
export {
  defineGate,
  defineLaunch,
  defineWorker,
  type FoundIssue,
  type GateDefinition,
  type Gates,
  type Launch,
  type LaunchDefinition,
  type NodeContext,
  type NodeDefinition,
  type Validation,
  type WorkerDefinition,
  type Workers,
} from './launch/definition.ts'
export type {
  ArtifactRef,
  ClonedInput,
  Issue,
  IssueLocation,
  LaunchEvent,
  LaunchEventType,
  LaunchFailure,
  LaunchPayloads,
  LlmCallFailed,
  LlmCallFinished,
  LlmCallStarted,
  LlmEventType,
  PullRequest,
  Severity,
  TokenUsage,
} from './launch/events.ts'
export type { Spans } from './launch/journal.ts'
export type { JsonSchema } from './launch/json-schema.ts'
export type { LaunchResult, LaunchRun, LaunchStatus } from './launch/launch-run.ts'
export {
  cancelLaunch,
  pauseLaunch,
  type ReplayedLaunch,
  replayLaunch,
  resumeLaunch,
  startLaunch,
  unpauseLaunch,
} from './launch/launches.ts'
export type { MirrorDatabase } from './launch/ledger-mirror.ts'
export type { LogDatabase } from './launch/log-database.ts'
export type {
  CancelOptions,
  LaunchDatabase,
  LaunchOptions,
  LaunchPlace,
  PauseOptions,
  ReplayOptions,
  ResumeOptions,
  StartOptions,
} from './launch/options.ts'
export type {
  ArtifactEntry,
  GateResult,
  LaunchMemory,
  LaunchState,
  NamedArtifact,
  TrackedIssue,
  WorkItem,
  WorkItemStatus,
} from './launch/reduce.ts'
export type { LaunchSnapshot, LogSeal } from './launch/snapshot.ts'
export {
  type ActiveStateOf,
  type NextStateOf,
  RUN_STATES,
  type RunState,
  type RunStates,
  SECTION_STATES,
  type SectionState,
  type StateModel,
  type StateOf,
  type StateRule,
} from './launch/states.ts'
