export type { Random as RandomBytes } from './core/id.ts'
export type {
  Fields,
  Flat,
  FromFields,
  FromName,
  FromSchema,
  JsonSchema,
  JsonType,
  JsonTypes,
  Vocabulary,
} from './core/schema.ts'
export type {
  Activity,
  AnyNodeContext,
  AnyWorkOptions,
  FinishedActivity,
  FixInput,
  GateContext,
  LaunchDescription,
  LaunchEvents,
  LaunchObserver,
  LlmContext,
  LlmFactory,
  ReadableArtifacts,
  RunContext,
  WorkerContext,
  WritableArtifacts,
  WriteArtifactOptions,
} from './launch/context.ts'
export { CONTRACTS, type ContractName } from './launch/contracts.ts'
export {
  type CodeOf,
  defineGate,
  defineLaunch,
  defineWorker,
  type FixerOf,
  type FoundIssue,
  type GateDefinition,
  type Gates,
  type InputOf,
  type Launch,
  type LaunchDefinition,
  type NodeContext,
  type NodeDefinition,
  type OutputOf,
  type RuntimeNode,
  type Validation,
  type WorkArguments,
  type WorkerDefinition,
  type Workers,
  type WorkScope,
} from './launch/definition.ts'
export type { DOCS_PAYLOADS, DOCS_RECORDS, DOCS_VALUES } from './launch/docs/formats.ts'
export {
  DOCS_STATES as RUN_STATES,
  type DocsMethods,
  type DocsState as RunState,
  type DocsStates as RunStates,
  SECTION_STATES,
  type SectionState,
} from './launch/docs/pipeline.ts'
export type {
  ArtifactEntry,
  ArtifactRef,
  ClonedInput,
  GateResult,
  Issue,
  IssueLocation,
  LaunchEvent,
  LaunchEventOf,
  LaunchEventType,
  LaunchFailure,
  LaunchFormat,
  LaunchFormats,
  LaunchPayloads,
  LaunchSnapshot,
  LlmCallFailed,
  LlmCallFinished,
  LlmCallStarted,
  LlmEventType,
  LogSeal,
  NamedArtifact,
  PullRequest,
  Severity,
  TokenUsage,
  TrackedIssue,
  WorkItem,
  WorkItemStatus,
} from './launch/events.ts'
export { type FlushTelemetryOptions, flushTelemetry, type RunFlush } from './launch/flush-telemetry.ts'
export type { PAYLOADS, RECORDS, VALUES } from './launch/formats.ts'
export type { Spans } from './launch/journal.ts'
export type { LaunchResult, LaunchRun, LaunchStatus } from './launch/launch-run.ts'
export type { LaunchMemory, LaunchState } from './launch/launch-state.ts'
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
export type {
  LlmEventSink,
  LlmTelemetry,
} from './launch/llm/call-record.ts'
export type { ChatBody, ChatMessage } from './launch/llm/chat-request.ts'
export type { Delta } from './launch/llm/chunks.ts'
export type { Choice, Completion } from './launch/llm/completion.ts'
export type { LlmMode } from './launch/llm/exchange.ts'
export {
  type FakeOpenAi,
  type FakeOpenAiOptions,
  type FakeRequest,
  type LlmFault,
  openFakeOpenAi,
} from './launch/llm/fake-openai.ts'
export type { JsonObject } from './launch/llm/json.ts'
export {
  type ChatRequest,
  type ChatResult,
  createLlm,
  type Llm,
  type LlmClient,
  type LlmScope,
} from './launch/llm/llm.ts'
export type { LlmEndpoint, LlmOptions } from './launch/llm/llm-options.ts'
export type { Price, PriceTable } from './launch/llm/prices.ts'
export { recordedFetch } from './launch/llm/recorded-fetch.ts'
export type { Fetch } from './launch/llm/transport.ts'
export type { LlmRetryOptions } from './launch/llm/tries.ts'
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
export { type ProgressOptions, type ProgressOutput, showProgress } from './launch/progress.ts'
export type { TelemetryOptions } from './launch/run-telemetry.ts'
export type {
  ActiveStateOf,
  NextStateOf,
  StateModel,
  StateOf,
  StateRule,
} from './launch/states.ts'
export type { FlushReport } from './telemetry/client.ts'
export type { ChildEnd, LlmCallEnd, LlmCallStart, Span } from './telemetry/launch-telemetry.ts'
export type { JsonMap, TelemetryStatus } from './telemetry/model.ts'
