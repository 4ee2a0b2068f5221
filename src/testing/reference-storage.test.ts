import { ReferenceStorage } from './reference-storage.ts'
import { testStorage } from './storage-suite.ts'

testStorage('reference', async options => new ReferenceStorage(options))
