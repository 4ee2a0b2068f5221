import type { Checkpoint, CheckpointMetadata, SerializerProtocol } from '@langchain/langgraph-checkpoint'
import { framed, unframed } from './framing.ts'

/** A checkpoint without its channel values, which are stored once and shared by all checkpoints that have them. */
export interface StoredCheckpoint {
  readonly checkpoint: Omit<Checkpoint, 'channel_values'>
  readonly parentId: string | undefined
  /** For each channel with a value, the checkpoint under which the value is stored. */
  readonly holders: Readonly<Record<string, string>>
  readonly metadata: CheckpointMetadata
  /** The stored text of everything but the metadata. Two checkpoints with the same text have the same parts. */
  readonly head: string
}

/** A serialized value, as LangGraph's serializers make it. */
export type Typed = readonly [type: string, bytes: Uint8Array]

/** The text of a checkpoint's part that is JSON. */
export function headOf(
  checkpoint: Checkpoint,
  parentId: string | undefined,
  holders: Readonly<Record<string, string>>,
): string {
  const { channel_values: _, ...rest } = checkpoint
  return JSON.stringify([rest, parentId ?? null, holders])
}

/** The stored form of a checkpoint: its head, the type of its metadata, and the metadata. */
export function encodeCheckpoint(head: string, [type, metadata]: Typed): Uint8Array {
  return framed(head, framed(type, metadata))
}

/** The inverse of `encodeCheckpoint`. */
export async function decodeCheckpoint(
  bytes: Uint8Array,
  serde: SerializerProtocol,
): Promise<StoredCheckpoint> {
  const [head, rest] = unframed(bytes)
  const [type, metadata] = unframed(rest)
  const [checkpoint, parentId, holders] = JSON.parse(head)
  return {
    checkpoint,
    parentId: parentId ?? undefined,
    holders,
    metadata: await serde.loadsTyped(type, metadata),
    head,
  }
}

/** The stored form of a channel's value. */
export function encodeValue([type, bytes]: Typed): Uint8Array {
  return framed(type, bytes)
}

/** The inverse of `encodeValue`. */
export async function decodeValue(bytes: Uint8Array, serde: SerializerProtocol): Promise<unknown> {
  const [type, payload] = unframed(bytes)
  return serde.loadsTyped(type, payload)
}

/** The stored form of a pending write. */
export function encodeWrite(channel: string, [type, bytes]: Typed): Uint8Array {
  return framed(JSON.stringify([channel, type]), bytes)
}

/** The inverse of `encodeWrite`. */
export async function decodeWrite(
  bytes: Uint8Array,
  serde: SerializerProtocol,
): Promise<readonly [channel: string, value: unknown]> {
  const [head, payload] = unframed(bytes)
  const [channel, type] = JSON.parse(head)
  return [channel, await serde.loadsTyped(type, payload)]
}
